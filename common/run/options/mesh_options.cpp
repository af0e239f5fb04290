// The options about a mesh of pipelines.
#include "common/run/options/mesh_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/comm/diagnosis/rank_snapshot.h"
#include "common/run/options/main_guard.h"
#include "common/run/options/pipeline_options.h"

namespace lab {
namespace {

constexpr int kMicrobatchesPerStep = 6;
constexpr int kStages = 3;

int largest_divisor(int number, int limit) {
  int divisor = std::min(number, limit);
  while (number % divisor != 0) --divisor;
  return divisor;
}

void settle_shape(MeshOptions& options, int ranks, bool resume) {
  if (ranks == 1 && resume) options.dp = options.pp = 1;  // otherwise as in the earlier run
  if (ranks == 0) {
    if (options.pp == 0) options.pp = kStages;
    if (options.dp == 0) options.dp = 2;
    return;
  }
  if (options.pp == 0 && options.dp == 0) options.pp = largest_divisor(ranks, kStages);
  if (options.pp == 0) options.pp = std::max(1, ranks / options.dp);
  if (options.dp == 0) options.dp = std::max(1, ranks / options.pp);
  if (options.ranks() != ranks)
    throw UsageError(fmt::format(
        "--dp {} --pp {}: {} pipelines of {} stages are {} ranks, but there are {}; change one",
        options.dp, options.pp, options.dp, options.pp, options.ranks(), ranks));
}

/// `per_step`: in all pipelines together; of a resumed run, as before.
void settle_microbatches(MeshOptions& options, int64_t per_step, bool resume) {
  const int64_t groups = int64_t{options.dp} * options.waves;
  if (options.microbatches == 0) {
    options.microbatches = static_cast<int>(std::max<int64_t>(1, per_step / groups));
    if (!resume || options.microbatches * groups == per_step) return;
  }
  if (resume && options.microbatches * groups != per_step)
    throw UsageError(fmt::format(
        "--resume: this run takes {} microbatches a step; {} pipelines, {} waves and "
        "--microbatches {} make {}",
        per_step, options.dp, options.waves, options.microbatches, options.microbatches * groups));
}

/// Makes a run's file of options describe the whole mesh, including what was not given.
void complete_config(std::string& file, const char* name, int value) {
  const std::string line = fmt::format("{}=", name);
  if (file.find("\n" + line) == std::string::npos) file += fmt::format("{}{}\n", line, value);
}

}  // namespace

void add_mesh_options(CLI::App& app, MeshOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Mesh");
  };
  add("--dp", options.dp, "N", "pipelines, each with its shard of the data; default: 2")
      ->check(CLI::Range(1, kMaxWorldSize));
  add("--pp", options.pp, "N", "stages of each pipeline; default: 3")
      ->check(CLI::Range(1, kMaxWorldSize));
  add("--microbatches", options.microbatches, "M",
      "that a wave takes through a pipeline; default: six a step in all pipelines")
      ->check(CLI::Range(1, 4096));
  add("--waves", options.waves, "W", "before each update of the weights")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add("--schedule", options.schedule, "gpipe|1f1b|FILE",
      "of a pipeline; a file: as common/pipeline/schedule.h says")
      ->capture_default_str();
}

void settle_mesh(MeshOptions& options, LaunchOptions& launch, TrainOptions& train) {
  const int ranks = ranks_wanted(launch);
  settle_shape(options, ranks, train.resume);
  if (options.ranks() > kMaxWorldSize)
    throw UsageError(fmt::format("--dp {} --pp {}: {} ranks; {} is the most", options.dp,
                                 options.pp, options.ranks(), kMaxWorldSize));
  settle_microbatches(options, train.resume ? train.ranks * train.accumulate : kMicrobatchesPerStep,
                      train.resume);
  check_microbatches(options.microbatches, options.pp);
  const int64_t per_pipeline = int64_t{options.microbatches} * options.waves;
  if (!train.resume && train.accumulate != 1 && train.accumulate != per_pipeline)
    throw UsageError("--accumulate: here it is --microbatches times --waves; say these");
  train.accumulate = per_pipeline;
  train.ranks = options.dp;
  if (ranks == 0) launch.ranks = options.ranks();
  complete_config(train.config_file, "dp", options.dp);
  complete_config(train.config_file, "pp", options.pp);
  complete_config(train.config_file, "microbatches", options.microbatches);
  train.program["--dp"] = fmt::format("{}", options.dp);  // a resumed run keeps it
  train.program["--pp"] = fmt::format("{}", options.pp);
}

}  // namespace lab
