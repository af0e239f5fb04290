// What differs between a GPU and its emulation, for the rank program: emulated.cpp and gpu.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lab01cuda {

/// How often every call is repeated: in the emulation, each time with another order of the threads.
int thread_orders();
/// Chooses the order for the kernels that run from now on, 0 <= number < thread_orders(). A GPU
/// chooses for itself.
void choose_thread_order(int number);
/// "descending"; on a GPU "run 2".
std::string name_of_thread_order(int number);

/// Calls `work`, which starts kernels and waits for them. Returns what the emulation has found
/// wrong with a kernel; empty if nothing, and on a GPU.
std::string finding_of(const std::function<void()>& work);

/// Kernels that have run so far; nothing where nobody counts.
std::optional<int> kernels_run();

/// How many numbers of 4 bytes a single thread of the last kernel has read at most, from global and
/// shared memory; nothing where nobody counts.
std::optional<int64_t> most_numbers_read();

}  // namespace lab01cuda
