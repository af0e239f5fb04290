// What all verdicts on kernels share: making calls, explaining what the machine has noticed, and
// telling which part of a row a kernel has overlooked.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "labs/01cuda_kernels/kernels.h"
#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"

namespace lab01cuda {

using lab::Tensor;
using lab::grading::draw_tensor;
using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::to_doubles;

struct Options {
  std::string lesson = {};  // told if numbers are wrong and no known mistake explains them
  int fence = 0;       // how many numbers before and after each array nobody may touch: see kFences
  int block_step = 1;  // of the blocks of a grid, only every block_step-th and the last one run
};

/// With these, each array in turn is the only one that begins at a multiple of 16 bytes.
inline constexpr int kFences[] = {600, 601, 602, 603};

/// One call, and how to judge its numbers.
struct KernelCall {
  std::string name;  // "3 rows of 40 columns"
  bool has_work;     // else no kernel need run
  Parcel input;
  std::function<void(const Parcel& result)> judge;
};

/// Makes the calls one after the other in one process. Ends the test as failed if the machine has
/// noticed something, if results depend on the order of the threads, if not exactly one kernel ran
/// on the stream of the workbook, or if the function has waited for it; else judges the numbers.
void judge_kernels(const std::string& scenario, const std::vector<KernelCall>& calls,
                   const Options& options);

/// As lab::grading::expect; says also if some were never written, and the lesson of the call. If
/// only some blocks have run, what is still as it was `before` is left out.
void expect_numbers(Numbers got, const Expected& expected, const Options& options,
                    const Numbers& before = {});

/// Ends the test as failed if a count of machine.h is larger than that. Nothing is known on a GPU.
void expect_at_most(const Parcel& result, const std::string& count, double limit,
                    const std::string& lesson);

/// The same for what one thread reads of long rows that have a block each: a quarter of a row. That
/// is eight times as much as each lane reads if a single warp goes over the row once.
void expect_shared_row(const Parcel& result, size_t columns);
inline constexpr size_t kLongRow = 4096;

/// Names of elements, for Expected: "row 2, column 7", or "row 2" if a row has one.
std::function<std::string(size_t)> place_in_row(size_t per_row, const std::string& element = "",
                                                const std::string& row = "row");

/// A wrong way to go over a row: of all columns, a thread finds only these in its result.
struct RowPart {
  std::string mistake = {};
  std::function<bool(size_t column, size_t thread)> has = {};  // none: all columns
};

/// What people overlook in a row of so many columns.
std::vector<RowPart> parts_of_row(size_t columns);

/// For each thread of the block, the sum of the terms (one per column) of its part.
Numbers sums_of(const RowPart& part, const Numbers& terms);

}  // namespace lab01cuda
