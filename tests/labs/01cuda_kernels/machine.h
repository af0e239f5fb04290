// What differs between a GPU and its emulation, for the rank program: emulated.cpp and gpu.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace lab01cuda {

/// Lies in memory that a kernel has yet to write: no test computes this number.
inline constexpr float kUntouched = -98765.0F;

/// What a call of the student's function has made the machine do.
struct Work {
  std::string finding = {};  // what the emulation has found wrong; empty on a GPU
  /// Nothing on a GPU, where nobody counts. Else
  ///   kernels     that ran on the stream of the workbook
  ///   elsewhere   on other streams
  ///   early       kernels that ran, and waits, before the function returned
  ///   others      copies and memsets
  ///   most_read   numbers of 4 bytes that one thread of the last kernel has read at most
  ///   most_written  the same of what one has written
  ///   read        from GPU memory by all its threads together
  ///   written     likewise
  std::map<std::string, double> counts = {};
};

/// Calls `call`, waits for what it has started, and then calls `read`. Threads and blocks run in an
/// order of this number, 0, 1, 2, ..., and of the blocks only every `block_step`-th and the last
/// one; on a GPU all.
Work watch(int order, int block_step, const std::function<void()>& call,
           const std::function<void()>& read);

/// How many numbers before and after each array nobody may touch, at least. The emulation finds
/// every access beyond an array that is just as long as its numbers.
int64_t least_fence();

}  // namespace lab01cuda
