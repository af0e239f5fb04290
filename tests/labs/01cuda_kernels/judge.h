// What all verdicts on kernels share: running them, and telling from which row lengths are wrong
// what a kernel may have overlooked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/grading/compare.h"
#include "common/grading/parcel.h"

namespace lab01cuda {

/// Row lengths around everything that a kernel counts in: one, a warp, a block; and some that are
/// multiples of none.
inline const std::vector<int64_t> kLengths = {1, 31, 32, 33, 127, 128, 129, 288, 1000, 4096};

/// Runs a scenario of the implementation that is judged. Ends the test as failed if the emulation
/// has found something, if memory beside the arrays was overwritten, if results depend on the order
/// of the threads, or if one call started several kernels, or none.
lab::grading::Parcel run_kernel(const std::string& scenario, const lab::grading::Parcel& input);

/// What a single thread may read.
struct Share {
  double limit = 0;  // in numbers
  std::string lesson;
  std::string of_what;  // "its row has 4096"
};

/// Ends the test as failed if one thread has read more than its share in the call whose results
/// have this suffix. Nothing is known of threads on a GPU.
void expect_shared_work(const lab::grading::Parcel& result, const std::string& suffix,
                        const Share& share);

/// The same for rows of `columns` with a block each: a quarter of a row, if it is long. That is
/// eight times as much as each lane reads if a single warp goes over the row once.
void expect_shared_row(const lab::grading::Parcel& result, const std::string& suffix,
                       int64_t columns);
inline constexpr int64_t kLongRow = 4096;

/// What came out of rows of one length, and what should have.
struct LengthResult {
  int64_t length;
  std::vector<double> got;
  lab::grading::Expected expected;
};

/// Ends the test as failed unless all are right. Mistakes (of the same order in all results) are
/// told if they explain every length; otherwise, which lengths are wrong.
void expect_lengths(const std::vector<LengthResult>& results);

}  // namespace lab01cuda
