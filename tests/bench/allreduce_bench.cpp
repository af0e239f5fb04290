// All-reduce through ProcessGroup, of tensors in host memory against Gloo alone in the same run, or
// of tensors in GPU memory over Gloo or NCCL: time, and bandwidths as nccl-tests define them
// (algorithm bandwidth = bytes / time; bus bandwidth = 2 (n - 1) / n of it, which is what the ring
// sends over each link, whatever the number of ranks n).
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "common/format.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/start_up.h"
#include "common/tensor/accelerator.h"
#include "tests/bench/raw_gloo.h"
#include "tests/bench/rounds.h"

namespace {

using namespace lab;
using bench::median;
using bench::RawGloo;
using bench::seconds;

/// `raw`: null for tensors in GPU memory, which Gloo alone does not support.
void measure(ProcessGroup& world, RawGloo* raw, Device device, int64_t bytes, int repeats) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  const Tensor tensor = Tensor::zeros({count}, device);
  std::vector<float> data(raw == nullptr ? 0 : static_cast<size_t>(count));
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int i = -2; i < repeats; ++i) {  // two rounds to warm up
    const double own_s = seconds(world, [&] {
      world.all_reduce(tensor);
      if (device == Device::kCuda) accelerator().synchronize();
    });
    const double raw_s = raw == nullptr ? 0.0 : seconds(world, [&] { raw->all_reduce(data); });
    if (i < 0) continue;
    ours.push_back(own_s);
    theirs.push_back(raw_s);
  }
  if (world.rank() != 0) return;
  const double time = median(ours);
  const double algorithm_bw = static_cast<double>(bytes) / time / 1e9;
  const double bus_bw = algorithm_bw * 2.0 * (world.size() - 1) / world.size();
  fmt::print("{:>6} {:>14} {:>12.3f} {:>12} {:>8.2f} {:>8.2f} {:>8}\n", world.size(),
             format_count(bytes), 1e3 * time,
             raw == nullptr ? "-" : fmt::format("{:.3f}", 1e3 * median(theirs)), algorithm_bw,
             bus_bw, raw == nullptr ? "-" : fmt::format("{:.3f}", time / median(theirs)));
  std::fflush(stdout);
}

int time_all_reduce(int argc, char** argv) {
  CommandLine app("Times all-reduce through ProcessGroup and by Gloo itself.");
  LaunchOptions launch;
  int64_t largest = int64_t{64} << 20;
  int repeats = 21;
  RunPlan where;  // its device and comm
  add_launch_options(app, launch);
  app.add("--device", where.device, "", "cpu, or cuda: tensors in GPU memory").shows_default();
  app.add("--comm", where.comm, "", "Between GPUs: gloo, nccl or auto")
      .one_of({"gloo", "nccl", "auto"})
      .shows_default();
  app.add("--largest", largest, "", "Bytes of the largest tensor").shows_default();
  app.add("--repeats", repeats, "", "Calls timed per size").shows_default();
  app.read(argc, argv);
  if (is_launcher(launch)) return launch_ranks(launch, argc, argv);

  Job job(read_rank_environment(launch));
  ProcessGroup& world = job.world();
  require(world.size() > 1, "one rank has nobody to talk to: --ranks 2 or more");
  const Device device = agree_on_device(job, where);
  std::optional<RawGloo> raw;
  if (device == Device::kCpu) raw.emplace(job);
  if (world.rank() == 0)
    fmt::print("{:>6} {:>14} {:>12} {:>12} {:>8} {:>8} {:>8}\n", "ranks", "bytes", "ours ms",
               "Gloo ms", "alg GB/s", "bus GB/s", "ratio");
  for (int64_t bytes = 4; bytes <= largest; bytes *= 8)
    measure(world, raw ? &*raw : nullptr, device, bytes, repeats);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, time_all_reduce); }
