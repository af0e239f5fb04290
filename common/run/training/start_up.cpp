// Makes sure that all ranks are about to do the same.
#include "common/run/training/start_up.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "common/comm/agreement.h"
#include "common/comm/nccl_transport.h"
#include "common/run/options/choose_device.h"
#include "common/run/rendezvous/rendezvous.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Why this rank cannot use NCCL, or "".
std::string problem_with_nccl(int local_rank) {
  const int gpus = accelerator_support().count;
  // With a different NCCL_HOSTID, a rank counts as another host: for trying NCCL on one GPU.
  const bool shares_gpu = local_rank >= gpus && std::getenv("NCCL_HOSTID") == nullptr;
  if (shares_gpu)
    return fmt::format(
        "rank {} of this machine would share one of its {} GPUs, and NCCL wants one per rank: "
        "start fewer ranks, or use --comm gloo",
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

// The keys in the store while some ranks work and the others wait.
constexpr const char* kDone = "first_ranks/done";  // counter: ranks that have nothing (more) to do
constexpr const char* kSigns = "first_ranks/signs";  // counter: signs of progress
constexpr const char* kAllDone = "first_ranks/all_done";
constexpr milliseconds kBetweenSigns{500};

/// `threads`: as given for every rank; 0: all cores together.
int threads_of_all(int threads, int ranks) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return threads > 0 ? std::min(threads * ranks, std::max(threads, cores)) : cores;
}

/// Sleeps. The deadline counts from the last sign of progress.
void wait_until_all_are_done(Job& job, const std::string& what, milliseconds patience) {
  Store& store = job.store();
  const MeetingScope scope(store, job.world().rank(), what);
  int64_t heard = store.add(kDone, 1);
  if (heard == job.world().size()) return store.set(kAllDone, "1");
  const milliseconds nap = std::min(patience, milliseconds(1000));
  auto deadline = Clock::now() + patience;
  while (true) {
    if (store.get_within(kAllDone, nap)) return;
    const int64_t now_heard = store.add(kDone, 0) + store.add(kSigns, 0);
    require(now_heard != heard || Clock::now() < deadline,
            "{} makes no progress: nothing was heard from it for {:g} s", what,
            std::chrono::duration<double>(patience).count());
    if (now_heard != heard) deadline = Clock::now() + patience;
    heard = now_heard;
  }
}

}  // namespace

Device agree_on_device(Job& job, const RunPlan& plan) {
  const int local_rank = job.environment().local_rank;
  const bool may_use_nccl = job.world().size() > 1 && plan.comm != "gloo";
  if (may_use_nccl) prepare_for_nccl();
  const Device device = choose_device(plan.device, plan.precision, local_rank).device;
  job.agree("device", device == Device::kCpu ? "the CPU" : "a GPU");
  if (device == Device::kCuda && may_use_nccl) connect_gpus(job, plan.comm == "nccl");
  return device;
}

void work_on_first_ranks(Job& job, const std::string& what, int threads,
                         const std::function<void(const std::function<void()>& going_on)>& work,
                         milliseconds patience) {
  const RankEnvironment& environment = job.environment();
  if (environment.world_size == 1) return work([] {});
  const std::vector<int> here = job.ranks_here();
  // A rank that was started by hand does not know how many others are on its machine.
  if (environment.local_rank == 0 || here.front() == environment.rank) {
    const int before = thread_count();
    set_thread_count(threads_of_all(threads, static_cast<int>(here.size())));  // others sleep
    auto next_sign = Clock::now();
    work([&] {
      if (Clock::now() < next_sign) return;
      next_sign = Clock::now() + kBetweenSigns;
      job.store().add(kSigns, 1);
    });
    set_thread_count(before);
  }
  wait_until_all_are_done(job, what, patience > milliseconds(0) ? patience : environment.timeout);
}

namespace {

/// Throws Error on every rank unless all were started with the same options, as far as these decide
/// what is computed. Otherwise ranks would wait for different things, or learn different things.
void agree_on_options(Job& job, const RunPlan& plan) {
  // Devices are compared by agree_on_device: "auto" may mean the same as "cuda".
  constexpr std::array<std::string_view, 7> kOwnAffair = {
      "threads", "data", "tokenizer", "prompt", "story_tokens", "program", "device"};
  const nlohmann::json values = plan_to_json(plan);
  for (const auto& [name, value] : values.items())
    if (std::ranges::find(kOwnAffair, name) == kOwnAffair.end())
      job.agree("option " + name, value.dump());
  for (const auto& [name, value] : plan.program)
    job.agree("option " + name.substr(name.find_first_not_of('-')), value);
  job.agree("option resume", plan.resume ? "yes" : "no");
  job.agree("option timeline", plan.timeline ? "yes" : "no");
}

Device agree(Job& job, const RunPlan& plan) {
  set_thread_count(plan.threads);
  agree_on_options(job, plan);
  return agree_on_device(job, plan);
}

/// The dataset of the plan. If necessary, the first rank of each machine tokenizes it, on all
/// cores, however long that takes; the others find the cache. Throws Error on every rank unless all
/// read the same corpus.
TokenDataset open_data(Job& job, const Tokenizer& tokenizer, const RunPlan& plan) {
  std::optional<TokenDataset> data;
  const auto open = [&](const std::function<void()>& going_on) {
    data.emplace(plan.data, tokenizer, plan.cache, going_on);
  };
  work_on_first_ranks(job, "the tokenizing of the corpus", plan.threads, open);
  if (!data) open({});
  job.agree("corpus (its checksum)", fmt::format("{:016x}", data->fingerprint()));
  return *std::move(data);
}

}  // namespace

Setup::Setup(Job& job, const RunPlan& plan)
    : device(agree(job, plan)),
      tokenizer(plan.tokenizer),
      data(open_data(job, tokenizer, plan)),
      model(plan.model),
      seed(static_cast<uint64_t>(plan.seed)) {
  model.vocab_size = tokenizer.vocab_size();
}

int64_t target_count(std::span<const TokenBatch> microbatches) {
  int64_t count = 0;
  for (const TokenBatch& batch : microbatches) count += batch.target_count();
  return count;
}

}  // namespace lab
