// What a test may set and ask of the emulation of CUDA. See docs/kernel-emulation.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace lab::emulation {

/// A kernel did what it must not do, or host code touched device memory. One line: which kernel,
/// block and thread, what, and which variable. Thrown by the call that ran the kernel; everything
/// else that was queued is dropped.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In which order the threads of a block, the blocks of a launch and the streams of a device run.
/// A correct kernel gives the right results in every order.
enum class Order { kAscending, kDescending, kShuffled };
void set_order(Order order, uint64_t seed = 0);
/// Of the launches that follow, only every `step`-th block and the last one run; 1: all. For grids
/// so large that it would take too long.
void set_block_step(unsigned step);

/// What cudaGetDeviceCount and its like find.
enum class Driver { kPresent, kMissing, kTooOld };
void set_driver(Driver driver);
void set_device_count(int count);
/// Of each device, in bytes. At first 4 GiB.
void set_total_memory(size_t bytes);
/// The compute capability that the devices report, initially 8.0; kernels run regardless of it.
void set_compute_capability(int major, int minor);
/// Whether the program was built for the devices, as far as cudaFuncGetAttributes says; at first it
/// was. Kernels run regardless.
void set_has_code(bool has_code);

/// Whether cuBLAS's products can be captured; at first they can. Otherwise a product fails in a
/// stream that is captured, and breaks the capture.
void set_records_products(bool records);

/// On this thread cudaDeviceGetPCIBusId names the bus of this device, whichever is asked for:
/// threads that share the emulation can then pass for processes with a GPU each. -1: no longer.
void set_bus_of_thread(int device);

/// Counts since the last reset().
struct Statistics {
  long launches = 0;     // kernels that ran, those of cuBLAS and of graphs included
  long allocations = 0;  // cudaMalloc
  long copies = 0;       // copies that ran
  long memsets = 0;      // likewise
  long waits = 0;        // calls by which the host waited for the device
  /// Of the kernel that ran last (not those of cuBLAS): what one of its threads has read at most,
  /// and what one has written to device memory.
  size_t most_bytes_read = 0;
  size_t most_bytes_written = 0;
  /// All its threads together, from and to device memory; without atomic operations.
  size_t device_bytes_read = 0;
  size_t device_bytes_written = 0;
};
Statistics statistics();

/// Throws the error that a call which cannot throw (cudaFree, cudaStreamDestroy, ...) has kept.
void check();

/// Drops what is queued, kept errors, captures and counts; all settings as at the start. Memory,
/// streams and events stay.
void reset();

}  // namespace lab::emulation
