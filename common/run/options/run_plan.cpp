// RunPlan: checks of the values, and their form in a checkpoint.
#include "common/run/options/run_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "common/comm/diagnosis/operation.h"
#include "common/io/json_file.h"
#include "common/run/options/main_guard.h"

namespace lab {

NLOHMANN_JSON_SERIALIZE_ENUM(Decay, {{Decay::kConstant, "constant"}, {Decay::kCosine, "cosine"}})
NLOHMANN_JSON_SERIALIZE_ENUM(OptimizerKind, {{OptimizerKind::kSgd, "sgd"},
                                             {OptimizerKind::kAdam, "adam"},
                                             {OptimizerKind::kAdamW, "adamw"}})

namespace {

// Calls visit(name, field) for every value that a checkpoint stores, with the option as a third
// argument if it is one that decides what a run computes: it cannot change halfway. Not the cache:
// a checkpoint may come from another machine, and must not say where this one writes.
template <typename Plan, typename Visit>
void visit_stored(Plan& plan, const Visit& visit) {
  visit("steps", plan.steps);
  visit("seed", plan.seed, "--seed");
  visit("device", plan.device);
  visit("precision", plan.precision);
  visit("comm", plan.comm);
  visit("threads", plan.threads);
  visit("ranks", plan.dp);
  visit("checkpoint_every", plan.checkpoint_every);
  visit("validate_every", plan.validate_every);
  visit("validation_batches", plan.validation_batches);
  visit("prompt", plan.prompt);
  visit("story_tokens", plan.story_tokens);
  visit("data", plan.data);
  visit("tokenizer", plan.tokenizer);
  visit("batch", plan.batch, "--batch");
  visit("accumulate", plan.accumulate, "--accumulate");
  visit("learning_rate", plan.learning_rate, "--lr");
  visit("warmup", plan.warmup, "--warmup");
  visit("schedule", plan.decay, "--decay");
  visit("optimizer", plan.optimizer, "--optimizer");
  visit("weight_decay", plan.weight_decay, "--weight-decay");
  visit("clip", plan.clip, "--clip");
  visit("program", plan.program);
  visit("dim", plan.model.dim, "--dim");
  visit("heads", plan.model.heads, "--heads");
  visit("kv_heads", plan.model.kv_heads, "--kv-heads");
  visit("layers", plan.model.layers, "--layers");
  visit("hidden", plan.model.hidden_dim, "--hidden");
  visit("context", plan.model.context, "--context");
  visit("tied", plan.model.tied_head, "--tied");
  visit("embedding_scale", plan.model.embedding_scale, "--embedding-scale");
}

template <typename T>
void read(const nlohmann::json& json, const char* name, T& field) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    field = static_cast<T>(
        whole_number(json, name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  else
    json.at(name).get_to(field);
}

}  // namespace

const char* in_shards(int stage) {
  static constexpr const char* kDivided[] = {"nothing", "the optimizer state",
                                             "gradients and optimizer state",
                                             "weights, gradients and optimizer state"};
  return kDivided[stage];
}

std::filesystem::path source_folder() {
#ifdef LAB_SOURCE_DIR
  const std::filesystem::path folder = LAB_SOURCE_DIR;
  if (folder.is_absolute()) return folder;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return (program.parent_path() / folder).lexically_normal();
#else
  return std::filesystem::current_path();
#endif
}

RunPlan default_plan() {
  RunPlan plan;
  plan.data = source_folder() / "data" / "stories.txt";
  plan.tokenizer = source_folder() / "data" / "tokenizer.model";
  plan.cache = source_folder() / ".cache";
  return plan;
}

LearningRate RunPlan::learning_rates() const {
  return {.peak = static_cast<float>(learning_rate),
          .warmup_steps = warmup,
          .total_steps = steps,
          .decay = decay};
}

void RunPlan::validate() const {
  const auto check_range = [](const char* option, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      throw UsageError(
          fmt::format("{} {}: it must lie between {} and {}", option, value, least, most));
  };
  const auto check = [](bool right, const std::string& message) {
    if (!right) throw UsageError(message);
  };
  const auto check_word = [&](const char* option, const std::string& word,
                              std::initializer_list<const char*> words) {
    check(std::ranges::find(words, word) != words.end(),
          fmt::format("{} {}: it must be one of {}", option, word, fmt::join(words, ", ")));
  };
  constexpr int64_t kMany = 1'000'000'000;
  check_range("--steps", steps, 1, kMany);
  check_range("--seed", seed, 0, INT64_MAX);
  check_range("--threads", threads, 0, 1024);
  check_range("--ranks", dp, 1, kMaxWorldSize);
  check_word("--device", device, {"cpu", "cuda", "auto"});
  check_word("--precision", precision, {"float32", "tf32", "bfloat16"});
  check_word("--comm", comm, {"gloo", "nccl", "auto"});
  check_range("--checkpoint-every", checkpoint_every, 0, kMany);
  check_range("--validate-every", validate_every, 0, kMany);
  check_range("--validation-batches", validation_batches, 1, kMany);
  check_range("--story-tokens", story_tokens, 0, kMany);
  check_range("--batch", batch, 1, 65536);
  check_range("--accumulate", accumulate, 1, 65536);
  check_range("--warmup", warmup, 0, steps);
  check_range("--context", model.context, 2, int64_t{1} << 20);
  check(std::isfinite(learning_rate) && learning_rate > 0.0 && learning_rate < 1e3,
        fmt::format("--lr {}: it must be positive and below 1000", learning_rate));
  check(std::isfinite(clip) && clip >= 0.0,
        fmt::format("--clip {}: it must be 0 (no clipping) or positive", clip));
  check(weight_decay >= 0.0 && weight_decay < 1e3,
        fmt::format("--weight-decay {}: it must be 0 or positive", weight_decay));
  check(weight_decay == 0.0 || optimizer == OptimizerKind::kAdamW,
        "--weight-decay needs --optimizer adamw: adam and sgd have none");
  try {
    model.validate();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

nlohmann::json plan_to_json(const RunPlan& plan) {
  nlohmann::json json = nlohmann::json::object();
  visit_stored(plan, [&](const char* name, const auto& field, const char* = nullptr) {
    json[name] = field;
  });
  return json;
}

RunPlan plan_from_json(const nlohmann::json& json) {
  RunPlan plan = default_plan();
  visit_stored(
      plan, [&](const char* name, auto& field, const char* = nullptr) { read(json, name, field); });
  return plan;
}

std::vector<std::pair<std::string, nlohmann::json>> fixed_values(const RunPlan& plan) {
  std::vector<std::pair<std::string, nlohmann::json>> values;
  visit_stored(plan, [&](const char*, const auto& field, const char* option = nullptr) {
    if (option != nullptr) values.emplace_back(option, field);
  });
  return values;
}

}  // namespace lab
