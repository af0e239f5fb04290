// TrainOptions: checks of the values, and their form in a checkpoint.
#include "common/run/options/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "common/comm/diagnosis/rank_snapshot.h"
#include "common/io/json_file.h"
#include "common/run/options/main_guard.h"

namespace lab {

NLOHMANN_JSON_SERIALIZE_ENUM(Decay, {{Decay::kConstant, "constant"}, {Decay::kCosine, "cosine"}})
NLOHMANN_JSON_SERIALIZE_ENUM(OptimizerKind, {{OptimizerKind::kSgd, "sgd"},
                                             {OptimizerKind::kAdam, "adam"},
                                             {OptimizerKind::kAdamW, "adamw"}})

namespace {

// Calls visit(name, field) for every value that a checkpoint stores.
template <typename Options, typename Visit>
void visit_stored(Options& options, const Visit& visit) {
  visit("steps", options.steps);
  visit("seed", options.seed);
  visit("device", options.device);
  visit("precision", options.precision);
  visit("comm", options.comm);
  visit("threads", options.threads);
  visit("ranks", options.ranks);
  visit("checkpoint_every", options.checkpoint_every);
  visit("validate_every", options.validate_every);
  visit("validation_batches", options.validation_batches);
  visit("prompt", options.prompt);
  visit("story_tokens", options.story_tokens);
  visit("data", options.data);
  visit("tokenizer", options.tokenizer);
  visit("cache", options.cache);
  visit("batch", options.batch);
  visit("accumulate", options.accumulate);
  visit("learning_rate", options.learning_rate);
  visit("warmup", options.warmup);
  visit("schedule", options.schedule);
  visit("optimizer", options.optimizer);
  visit("weight_decay", options.weight_decay);
  visit("clip", options.clip);
  visit("program", options.program);
  visit("dim", options.model.dim);
  visit("heads", options.model.heads);
  visit("kv_heads", options.model.kv_heads);
  visit("layers", options.model.layers);
  visit("hidden", options.model.hidden_dim);
  visit("context", options.model.context);
  visit("tied", options.model.tied_head);
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

std::filesystem::path source_folder() {
#ifdef LAB_SOURCE_DIR
  return LAB_SOURCE_DIR;
#else
  return std::filesystem::current_path();
#endif
}

TrainOptions default_train_options() {
  TrainOptions options;
  options.data = source_folder() / "data" / "stories.txt";
  options.tokenizer = source_folder() / "data" / "tokenizer.model";
  options.cache = source_folder() / ".cache";
  return options;
}

int64_t sequences_per_step(const TrainOptions& options) {
  return options.ranks * options.accumulate * options.batch;
}

LearningRate TrainOptions::learning_rates() const {
  return {.peak = static_cast<float>(learning_rate),
          .warmup_steps = warmup,
          .total_steps = steps,
          .decay = schedule};
}

void TrainOptions::validate() const {
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
  check_range("--ranks", ranks, 1, kMaxWorldSize);
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

nlohmann::json options_to_json(const TrainOptions& options) {
  nlohmann::json json = nlohmann::json::object();
  visit_stored(options, [&](const char* name, const auto& field) { json[name] = field; });
  return json;
}

TrainOptions options_from_json(const nlohmann::json& json) {
  TrainOptions options = default_train_options();
  visit_stored(options, [&](const char* name, auto& field) { read(json, name, field); });
  return options;
}

}  // namespace lab
