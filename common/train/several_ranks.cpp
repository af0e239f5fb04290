// Agreement of the ranks on what they are about to do.
#include "common/train/several_ranks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/comm/agreement.h"
#include "common/comm/nccl/nccl_transport.h"
#include "common/tensor/accelerator.h"
#include "common/train/choose_device.h"

namespace lab {
namespace {

/// Why this rank cannot use NCCL, or "".
std::string problem_with_nccl(int local_rank) {
  const int gpus = accelerator_support().count;
  // With a name of its own, a rank passes for another host: for trying NCCL out on one GPU.
  const bool shares_gpu = local_rank >= gpus && std::getenv("NCCL_HOSTID") == nullptr;
  if (shares_gpu)
    return fmt::format(
        "rank {} of this machine would share one of its {} GPUs, and NCCL wants one per rank: "
        "start "
        "fewer ranks, or use --comm gloo",
        local_rank, gpus);
  return nccl_problem();
}

void connect_gpus(Job& job, bool required) {
  const std::string problem = problem_with_nccl(job.environment().local_rank);
  const bool possible = all_true(job.world(), problem.empty());
  require(possible || !required, "--comm nccl: {}",
          problem.empty() ? "another rank cannot use it" : problem);
  if (!possible) return;
  job.world().connect_gpus(connect_nccl({.rank = job.world().rank(),
                                         .size = job.world().size(),
                                         .timeout = job.environment().timeout},
                                        job.store()));
}

}  // namespace

void agree_on_options(Job& job, const TrainOptions& options) {
  constexpr std::array<std::string_view, 7> kOwnAffair = {
      "threads", "data", "tokenizer", "cache", "prompt", "story_tokens", "program"};
  const nlohmann::json values = options_to_json(options);
  for (const auto& [name, value] : values.items())
    if (std::ranges::find(kOwnAffair, name) == kOwnAffair.end())
      job.agree("option " + name, value.dump());
  for (const auto& [name, value] : options.program)
    job.agree("option " + name.substr(name.find_first_not_of('-')), value);
  job.agree("option resume", options.resume ? "yes" : "no");
}

Device agree_on_device(Job& job, const TrainOptions& options) {
  const int local_rank = job.environment().local_rank;
  const Device device = choose_device(options.device, options.precision, local_rank).device;
  job.agree("option precision", options.precision);
  job.agree("device", device == Device::kCpu ? "the CPU" : "a GPU");
  if (device == Device::kCuda && job.world().size() > 1 && options.comm != "gloo")
    connect_gpus(job, options.comm == "nccl");
  return device;
}

TokenDataset open_data(Job& job, const Tokenizer& tokenizer, const TrainOptions& options) {
  const bool first = job.environment().local_rank == 0;
  if (!first) job.world().barrier();
  TokenDataset data(options.data, tokenizer, options.cache);
  if (first) job.world().barrier();
  job.agree("corpus (its checksum)", fmt::format("{:016x}", data.fingerprint()));
  return data;
}

int64_t target_count(std::span<const TokenBatch> microbatches) {
  int64_t count = 0;
  for (const TokenBatch& batch : microbatches) count += batch.target_count();
  return count;
}

}  // namespace lab
