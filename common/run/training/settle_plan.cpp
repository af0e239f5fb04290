#include "common/run/training/settle_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "common/error.h"
#include "common/io/json_file.h"
#include "common/printable.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/checkpoint/training_state.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

void add_run_options(CommandLine& line, RunPlan& plan, const ProgramInfo& info) {
  line.group("Run");
  line.add("--steps", plan.steps, "N", "optimizer steps").shows_default();
  line.add("--seed", plan.seed, "N", "decides initial weights, order of the data and the story")
      .shows_default();
  line.add("--device", plan.device, "NAME", "cpu, cuda, or auto: a GPU if there is one")
      .shows_default()
      .one_of({"cpu", "cuda", "auto"});
  line.add("--precision", plan.precision, "NAME",
           "float32, bfloat16 (CPUs with AVX512-BF16 or AMX, GPUs) or tf32 (GPUs); weights stay "
           "float32")
      .shows_default()
      .one_of({"float32", "tf32", "bfloat16"});
  line.add("--comm", plan.comm, "NAME",
           "between ranks on GPUs; auto is NCCL if each has its own GPU, else Gloo")
      .shows_default()
      .one_of({"gloo", "nccl", "auto"});
  line.add("--threads", plan.threads, "N", "0: all cores; of several ranks, an equal part each")
      .shows_default();
  line.add("--out", plan.out, "FOLDER",
           "for what this run writes; default: the next free one in runs/")
      .not_in_file();
  line.add_flag("--resume", plan.resume, "continue from the newest checkpoint in --out")
      .not_in_file();
  line.add("--checkpoint-every", plan.checkpoint_every, "N", "steps; 0: at the end only")
      .shows_default();
  line.add("--validate-every", plan.validate_every, "N", "steps; 0: at start and end only")
      .shows_default();
  line.add("--validation-batches", plan.validation_batches, "N", "microbatches per validation")
      .shows_default();
  line.add("--prompt", plan.prompt, "TEXT", "how the story at the end begins").shows_default();
  line.add("--story-tokens", plan.story_tokens, "N", "longest story; 0: none").shows_default();
  if (info.log_every > 0)
    line.add("--log-every", plan.log_every, "N",
             "steps from one loss to the next; each costs a message")
        .within(1, 1'000'000'000)
        .shows_default()
        .carried();
  if (info.restarts)
    line.add("--max-restarts", plan.max_restarts, "N",
             "resume from the newest checkpoint when a rank fails, at most N times")
        .within(0, 1'000'000);
  line.add_config(
      "options from a file, such as a run's config.ini; those given here take precedence");
}

void add_data_options(CommandLine& line, RunPlan& plan) {
  line.group("Data");
  line.add("--data", plan.data, "FILE", "stories, each closed by <|endoftext|>; default: shipped");
  line.add("--tokenizer", plan.tokenizer, "FILE", "a sentencepiece .model; default: shipped");
  line.add("--cache", plan.cache, "FOLDER", "where the tokenized corpus is kept");
}

void add_optimization_options(CommandLine& line, RunPlan& plan, const ProgramInfo& info) {
  line.group("Optimization");
  line.add("--batch", plan.batch, "N", "sequences per microbatch").shows_default();
  line.add("--accumulate", plan.accumulate, "N", "microbatches per step").shows_default();
  line.add("--lr", plan.learning_rate, "X", "peak learning rate").shows_default();
  line.add("--warmup", plan.warmup, "N",
           fmt::format("steps of linear rise; default: --steps / {}", info.warmup_share));
  line.add_choice<Decay>("--decay", plan.decay,
                         {{"constant", Decay::kConstant}, {"cosine", Decay::kCosine}},
                         "how the learning rate falls after the warm-up; default: cosine");
  line.add_choice<OptimizerKind>("--optimizer", plan.optimizer,
                                 {{"sgd", OptimizerKind::kSgd},
                                  {"adam", OptimizerKind::kAdam},
                                  {"adamw", OptimizerKind::kAdamW}},
                                 "default: adam");
  line.add("--weight-decay", plan.weight_decay, "X", "for adamw; default: 0.01");
  line.add("--clip", plan.clip, "X", "largest norm of the gradient; 0: none").shows_default();
}

void add_model_options(CommandLine& line, LlamaConfig& model, float embedding_scale) {
  line.group("Model");
  line.add("--dim", model.dim, "N", "width of the hidden states").shows_default();
  line.add("--heads", model.heads, "N", "attention heads; must divide --dim").shows_default();
  line.add("--kv-heads", model.kv_heads, "N", "heads of keys and values; default: --heads");
  line.add("--layers", model.layers, "N", "transformer layers").shows_default();
  line.add("--hidden", model.hidden_dim, "N", "width inside the MLP; default: 4 * --dim");
  line.add("--context", model.context, "N", "tokens per sequence").shows_default();
  line.add_flag("--tied", model.tied_head, "embedding and head share their weights");
  line.add(
      "--embedding-scale", model.embedding_scale, "X",
      fmt::format("first values of the embedding, relative to other weights'; default: {}",
                  embedding_scale == 1 ? "1" : fmt::format("{}; with --tied: 1", embedding_scale)));
}

/// What was read, and what a resumed run may not or need not give again.
struct Reading {
  std::set<std::string> given;
  std::map<std::string, std::string> kept;
};

// Reads the command line into `plan`, on top of what it holds.
Reading read_over(RunPlan& plan, const std::vector<const char*>& arguments,
                  const ProgramInfo& info) {
  plan.division = info.division;
  plan.log_every = std::max<int64_t>(1, info.log_every);
  CommandLine line(info.about);
  add_run_options(line, plan, info);
  add_data_options(line, plan);
  add_optimization_options(line, plan, info);
  add_model_options(line, plan.model, info.embedding_scale);
  add_rank_options(line, plan);
  line.group("Run");
  if (info.add_options) info.add_options(line);
  line.read(static_cast<int>(arguments.size()), arguments.data());
  plan.config_file = line.as_file();
  for (const auto& values : {line.kept(), line.carried()})
    for (const auto& [name, value] : values) plan.program[name] = value;
  return {line.given(), line.kept()};
}

// Values that follow from others unless given.
void derive(RunPlan& plan, const std::set<std::string>& given, const ProgramInfo& info) {
  if (!given.contains("--warmup"))
    plan.warmup = std::max<int64_t>(plan.steps, 0) / info.warmup_share;
  if (!given.contains("--kv-heads")) plan.model.kv_heads = plan.model.heads;
  if (!given.contains("--hidden")) plan.model.hidden_dim = 4 * plan.model.dim;
  if (!given.contains("--embedding-scale"))
    plan.model.embedding_scale = plan.model.tied_head ? 1 : info.embedding_scale;
  if (!given.contains("--weight-decay") && plan.optimizer == OptimizerKind::kAdamW)
    plan.weight_decay = 0.01;
}

void check_can_resume(const fs::path& out) {
  if (out.empty()) throw UsageError("--resume needs --out: the folder of the run to continue");
  require(can_resume(out), "--resume: there is no checkpoint in {}", out.string());
}

// The plan of the earlier run, updated by what is given now. Of the program's own options, only
// those that a run keeps or carries are taken over: a checkpoint may come from anywhere.
RunPlan updated(const RunPlan& stored, const fs::path& out, std::vector<const char*> arguments,
                const std::set<std::string>& given, const std::set<std::string>& of_a_run,
                const ProgramInfo& info) {
  RunPlan plan = stored;
  std::erase_if(plan.program, [&](const auto& option) { return !of_a_run.contains(option.first); });
  std::vector<std::string> taken_over;
  for (const auto& [name, value] : plan.program)
    if (!given.contains(name) && !value.empty()) taken_over.push_back(name + "=" + value);
  for (const std::string& argument : taken_over) arguments.push_back(argument.c_str());
  const Reading reading = read_over(plan, arguments, info);
  const auto check = [&](const std::string& option, const nlohmann::json& had,
                         const nlohmann::json& has) {
    const auto text = [](const nlohmann::json& value) {
      return printable(value.is_string() ? value.get<std::string>() : dumped(value));
    };
    if (had != has)
      throw UsageError(fmt::format(
          "{} {} contradicts the run in {}, which has {}; leave the option out or start a new run",
          option, text(has), out.string(), text(had)));
  };
  const auto before = fixed_values(stored);
  const auto after = fixed_values(plan);
  for (size_t i = 0; i < after.size(); ++i)
    check(after[i].first, before[i].second, after[i].second);
  for (const auto& [name, value] : reading.kept)
    if (stored.program.contains(name)) check(name, stored.program.at(name), value);
  return plan;
}

// File of options and checkpoint describe the whole mesh, including what was not given.
void describe_mesh(RunPlan& plan) {
  for (const auto& [name, value] : {std::pair{"dp", plan.dp},
                                    {"pp", plan.pp},
                                    {"tp", plan.tp},
                                    {"microbatches", plan.microbatches}}) {
    if (name == std::string("tp") && plan.division == Division::kMesh) continue;
    if (plan.config_file.find(fmt::format("\n{}=", name)) == std::string::npos)
      plan.config_file += fmt::format("{}={}\n", name, value);
    if (name != std::string("microbatches"))
      plan.program[fmt::format("--{}", name)] = std::to_string(value);
  }
}

}  // namespace

RunPlan settle_plan(int argc, const char* const* argv, const ProgramInfo& info) {
  RunPlan plan = default_plan();
  plan.batch = info.batch;
  plan.steps = info.steps;
  plan.learning_rate = info.learning_rate;
  plan.checkpoint_every = info.checkpoint_every;
  plan.validation_batches = info.validation_batches;
  std::vector<const char*> arguments(argv, argv + argc);
  std::set<std::string> given = read_over(plan, arguments, info).given;
  if (plan.resume) check_can_resume(plan.out);
  const auto checkpoints = plan.resume ? list_checkpoints(plan.out) : std::vector<fs::path>();
  if (!checkpoints.empty()) {
    const RunPlan stored = load_training_state(checkpoints.back()).plan;
    std::set<std::string> of_a_run;
    for (const auto& [name, value] : plan.program) of_a_run.insert(name);
    plan = updated(stored, plan.out, arguments, given, of_a_run, info);
    const int64_t microbatches = stored.dp * stored.accumulate;
    settle_ranks(plan, microbatches);
    if (info.regroups && microbatches % plan.dp == 0) plan.accumulate = microbatches / plan.dp;
    const auto stages_of_split = 1 + std::ranges::count(plan.split, ',');
    if (!given.contains("--split") && stages_of_split != plan.pp)
      plan.program["--split"] = plan.split = "";
  } else {
    const std::string options = options_file(plan.out).string();
    if (plan.resume && !given.contains("--config")) {  // it was killed before its first checkpoint
      arguments.insert(arguments.end(), {"--config", options.c_str()});
      given = read_over(plan, arguments, info).given;
    }
    derive(plan, given, info);
    settle_ranks(plan);
  }
  if (has_mesh(info.division)) describe_mesh(plan);
  if (info.settle) info.settle(plan);
  if (!plan.resume && !plan.out.empty()) check_out_is_free(plan.out);
  plan.validate();
  plan.run_name = info.run_name;
  for (fs::path* path : {&plan.data, &plan.tokenizer, &plan.cache}) *path = fs::absolute(*path);
  return plan;
}

}  // namespace lab
