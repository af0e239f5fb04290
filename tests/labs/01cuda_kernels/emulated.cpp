// machine.h for the emulation of CUDA.
#include "tests/emulation/emulation.h"
#include "tests/labs/01cuda_kernels/machine.h"

namespace lab01cuda {

using lab::emulation::Order;

int thread_orders() { return 4; }

void choose_thread_order(int number) {
  switch (number) {
    case 0:
      return lab::emulation::set_order(Order::kAscending);
    case 1:
      return lab::emulation::set_order(Order::kDescending);
    default:
      return lab::emulation::set_order(Order::kShuffled, static_cast<uint64_t>(number));
  }
}

std::string name_of_thread_order(int number) {
  return number == 0 ? "ascending" : number == 1 ? "descending" : "shuffled";
}

std::string finding_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const lab::emulation::KernelError& error) {
    return error.what();
  }
}

std::optional<int> kernels_run() { return static_cast<int>(lab::emulation::statistics().launches); }

std::optional<int64_t> most_numbers_read() {
  return static_cast<int64_t>(lab::emulation::statistics().most_bytes_read / sizeof(float));
}

}  // namespace lab01cuda
