// machine.h for the emulation of CUDA.
#include <cuda_runtime.h>

#include <algorithm>

#include "common/tensor/accelerator.h"
#include "tests/emulation/emulation.h"
#include "tests/labs/01cuda_kernels/machine.h"

namespace lab01cuda {

using lab::emulation::Order;
using lab::emulation::Statistics;

Work watch(int order, int block_step, const std::function<void()>& call,
           const std::function<void()>& read) {
  constexpr Order kOrders[] = {Order::kAscending, Order::kDescending, Order::kShuffled};
  const auto seed = static_cast<uint64_t>(order);
  lab::emulation::set_order(kOrders[std::min<uint64_t>(seed, 2)], seed);
  lab::emulation::set_block_step(static_cast<unsigned>(block_step));
  Work work;
  try {
    lab::accelerator().synchronize();
    const Statistics before = lab::emulation::statistics();
    call();
    const Statistics returned = lab::emulation::statistics();
    lab::accelerator().synchronize();
    const Statistics on_stream = lab::emulation::statistics();
    cudaDeviceSynchronize();  // what waits on another stream runs only now
    const Statistics all = lab::emulation::statistics();
    const auto set = [&](const char* name, auto count) {
      work.counts[name] = static_cast<double>(count);
    };
    set("kernels", on_stream.launches - before.launches);
    set("elsewhere", all.launches - on_stream.launches);
    set("early", returned.launches - before.launches + returned.waits - before.waits);
    set("others", all.copies - before.copies + all.memsets - before.memsets);
    if (all.launches == before.launches) return read(), work;
    set("most_read", all.most_bytes_read / sizeof(float));
    set("most_written", all.most_bytes_written / sizeof(float));
    set("read", all.device_bytes_read / sizeof(float));
    set("written", all.device_bytes_written / sizeof(float));
    read();
  } catch (const lab::emulation::KernelError& error) {
    work.finding = error.what();
  }
  return work;
}

int64_t least_fence() { return 0; }

}  // namespace lab01cuda
