// The command line of a training program.
#include "common/run/training/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/checkpoint/training_state.h"
#include "common/run/options/main_guard.h"
#include "common/run/options/options.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

// Options that decide what a run computes: they cannot change halfway.
constexpr std::pair<const char*, const char*> kFixedOnResume[] = {
    {"seed", "--seed"},
    {"batch", "--batch"},
    {"accumulate", "--accumulate"},
    {"learning_rate", "--lr"},
    {"warmup", "--warmup"},
    {"schedule", "--decay"},
    {"optimizer", "--optimizer"},
    {"weight_decay", "--weight-decay"},
    {"clip", "--clip"},
    {"dim", "--dim"},
    {"heads", "--heads"},
    {"kv_heads", "--kv-heads"},
    {"layers", "--layers"},
    {"hidden", "--hidden"},
    {"context", "--context"},
    {"tied", "--tied"},
};

void add_run_options(CLI::App& app, TrainOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Run");
  };
  add("--steps", options.steps, "N", "optimizer steps")->capture_default_str();
  add("--seed", options.seed, "N", "of initial weights, order of the data and the story")
      ->capture_default_str();
  add("--device", options.device, "NAME", "cpu, cuda, or auto: a GPU if there is one")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  add("--precision", options.precision, "NAME",
      "on a GPU: float32, tf32 or bfloat16; weights stay float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "tf32", "bfloat16"}));
  add("--comm", options.comm, "NAME",
      "of ranks on GPUs: gloo, nccl, or auto: NCCL if each has its own GPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"gloo", "nccl", "auto"}));
  add("--threads", options.threads, "N", "0: all cores; of several ranks, an equal part each")
      ->capture_default_str();
  add("--out", options.out, "FOLDER", "of this run; default: the next free one in runs/")
      ->configurable(false);
  app.add_flag("--resume", options.resume, "continue from the newest checkpoint in --out")
      ->group("Run")
      ->configurable(false);
  add("--checkpoint-every", options.checkpoint_every, "N", "steps; 0: at the end only")
      ->capture_default_str();
  add("--validate-every", options.validate_every, "N", "steps; 0: at start and end only")
      ->capture_default_str();
  add("--validation-batches", options.validation_batches, "N", "microbatches per validation")
      ->capture_default_str();
  add("--prompt", options.prompt, "TEXT", "how the story at the end begins")->capture_default_str();
  add("--story-tokens", options.story_tokens, "N", "longest story; 0: none")->capture_default_str();
}

void add_data_options(CLI::App& app, TrainOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Data");
  };
  add("--data", options.data, "FILE", "stories, each closed by <|endoftext|>; default: shipped");
  add("--tokenizer", options.tokenizer, "FILE", "a sentencepiece .model; default: shipped");
  add("--cache", options.cache, "FOLDER", "where the tokenized corpus is kept");
}

void add_optimization_options(CLI::App& app, TrainOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Optimization");
  };
  const auto add_choice = [&](const char* name, auto& value, const auto& choices,
                              const char* text) {
    const auto take = [&value, choices](const std::string& word) { value = choices.at(word); };
    std::vector<std::string> words;
    for (const auto& [word, meaning] : choices) words.push_back(word);
    app.add_option_function<std::string>(name, take, text)
        ->type_name(fmt::format("{}", fmt::join(words, "|")))
        ->check(CLI::IsMember(words).description(""))
        ->group("Optimization");
  };
  const std::map<std::string, Decay> decays = {{"constant", Decay::kConstant},
                                               {"cosine", Decay::kCosine}};
  const std::map<std::string, OptimizerKind> optimizers = {{"sgd", OptimizerKind::kSgd},
                                                           {"adam", OptimizerKind::kAdam},
                                                           {"adamw", OptimizerKind::kAdamW}};
  add("--batch", options.batch, "N", "sequences per microbatch")->capture_default_str();
  add("--accumulate", options.accumulate, "N", "microbatches per step")->capture_default_str();
  add("--lr", options.learning_rate, "X", "peak learning rate")->capture_default_str();
  add("--warmup", options.warmup, "N", "steps of linear rise; default: a sixteenth of --steps");
  add_choice("--decay", options.schedule, decays,
             "of the learning rate after the warm-up; default: cosine");
  add_choice("--optimizer", options.optimizer, optimizers, "default: adam");
  add("--weight-decay", options.weight_decay, "X", "of adamw; default: 0.01");
  add("--clip", options.clip, "X", "largest norm of the gradient; 0: none")->capture_default_str();
}

void add_model_options(CLI::App& app, TrainOptions& options) {
  LlamaConfig& model = options.model;
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->type_name("N")->group("Model");
  };
  add("--dim", model.dim, "width of the hidden states")->capture_default_str();
  add("--heads", model.heads, "attention heads; must divide --dim")->capture_default_str();
  add("--kv-heads", model.kv_heads, "heads of keys and values; default: --heads");
  add("--layers", model.layers, "transformer layers")->capture_default_str();
  add("--hidden", model.hidden_dim, "width inside the MLP; default: 4 * --dim");
  add("--context", model.context, "tokens per sequence")->capture_default_str();
  app.add_flag("--tied", model.tied_head, "embedding and head share their weights")->group("Model");
}

// All options as a file. CLI11 gives empty texts for values that follow from other options: they
// are left out, and will follow again.
std::string config_file(const CLI::App& app, const std::set<std::string>& given) {
  std::istringstream lines(app.config_to_str(/*default_also=*/true, /*write_description=*/true));
  std::string file;
  std::string comment;  // about the option that follows
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#') || line.empty()) {
      comment += line + "\n";
      continue;
    }
    const std::string name = "--" + line.substr(0, line.find('='));
    if (!line.ends_with("=\"\"") || given.contains(name)) file += comment + line + "\n";
    comment.clear();
  }
  return file;
}

// Reads the command line into `options`, on top of what it holds; returns which options were given.
std::set<std::string> parse_over(TrainOptions& options, const std::vector<const char*>& arguments,
                                 const ProgramInfo& info) {
  CLI::App app(info.about);
  app.get_formatter()->column_width(38);
  add_run_options(app, options);
  add_data_options(app, options);
  add_optimization_options(app, options);
  add_model_options(app, options);
  if (info.add_options) info.add_options(app);
  app.set_config(
         "--config", "",
         "options from a file, such as a run's config.ini; those given here take precedence")
      ->type_name("FILE")
      ->group("Run");
  app.allow_config_extras(CLI::config_extras_mode::error);
  parse_command_line(app, static_cast<int>(arguments.size()), arguments.data());
  std::set<std::string> given;
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0) given.insert(option->get_name());
  options.config_file = config_file(app, given);
  std::vector<std::string> remembered = info.kept;
  remembered.insert(remembered.end(), info.carried.begin(), info.carried.end());
  for (const std::string& name : remembered) {
    const CLI::Option* option = app.get_option(name);
    options.program[name] =
        option->count() > 0 ? option->as<std::string>() : option->get_default_str();
  }
  return given;
}

// Values that follow from others unless given.
void derive(TrainOptions& options, const std::set<std::string>& given) {
  if (!given.contains("--warmup")) options.warmup = std::max<int64_t>(options.steps, 0) / 16;
  if (!given.contains("--kv-heads")) options.model.kv_heads = options.model.heads;
  if (!given.contains("--hidden")) options.model.hidden_dim = 4 * options.model.dim;
  if (!given.contains("--weight-decay") && options.optimizer == OptimizerKind::kAdamW)
    options.weight_decay = 0.01;
}

// The options of the run in `out`, updated by those given now.
TrainOptions resumed_options(const fs::path& out, std::vector<const char*> arguments,
                             const std::set<std::string>& given, const ProgramInfo& info) {
  if (out.empty()) throw UsageError("--resume needs --out: the folder of the run to continue");
  const auto checkpoints = list_checkpoints(out);
  require(!checkpoints.empty(), "--resume: there is no checkpoint in {}", out.string());
  const TrainOptions stored = load_training_state(checkpoints.back()).options;

  TrainOptions options = stored;
  std::vector<std::string> kept;
  for (const auto& [name, value] : stored.program)
    if (!given.contains(name) && !value.empty()) kept.push_back(name + "=" + value);
  for (const std::string& argument : kept) arguments.push_back(argument.c_str());
  parse_over(options, arguments, info);
  for (const std::string& argument : kept)
    options.resumed.insert(argument.substr(0, argument.find('=')));
  const nlohmann::json before = options_to_json(stored);
  const nlohmann::json after = options_to_json(options);
  const auto text = [](const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  const auto check = [&](const std::string& option, const nlohmann::json& had,
                         const nlohmann::json& has) {
    if (had != has)
      throw UsageError(fmt::format(
          "{} {} contradicts the run in {}, which has {}; leave the option out or start a new run",
          option, text(has), out.string(), text(had)));
  };
  for (const auto& [key, option] : kFixedOnResume) check(option, before[key], after[key]);
  for (const std::string& name : info.kept)
    if (stored.program.contains(name))
      check(name, stored.program.at(name), options.program.at(name));
  return options;
}

}  // namespace

TrainOptions parse_train_options(int argc, const char* const* argv, const ProgramInfo& info) {
  TrainOptions options = default_train_options();
  options.batch = info.batch;
  options.steps = info.steps;
  options.checkpoint_every = info.checkpoint_every;
  const std::vector<const char*> arguments(argv, argv + argc);
  const std::set<std::string> given = parse_over(options, arguments, info);
  if (options.resume) {
    options = resumed_options(options.out, arguments, given, info);
  } else {
    derive(options, given);
    if (!options.out.empty()) check_out_is_free(options.out);
  }
  options.validate();
  options.run_name = info.run_name;
  for (fs::path* path : {&options.data, &options.tokenizer, &options.cache})
    *path = fs::absolute(*path);
  return options;
}

}  // namespace lab
