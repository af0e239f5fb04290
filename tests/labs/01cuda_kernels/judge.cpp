#include "tests/labs/01cuda_kernels/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "tests/labs/01cuda_kernels/machine.h"

namespace lab01cuda {
namespace {

using lab::grading::difference;

/// What a finding of the emulation means: the first whose two texts occur in it.
constexpr const char* kLessons[][3] = {
    {"", "divergent barrier",
     "not all threads of the block reach the same __syncthreads(): a barrier must not be in a "
     "branch, in a loop or after a return that only some of them take"},
    {"", "does not name",
     "the mask of a shuffle must name every lane that takes part, and every lane that is read: for "
     "all 32 it is 0xffffffff"},
    {"waits in", "_sync with mask",
     "lanes of one warp wait in a shuffle for others that do not come: all 32 lanes must call it "
     "together, including those that have no column of the row"},
    {"", "nothing orders blocks",
     "two blocks use the same place in memory, and one of them writes: blocks run in any order and "
     "never wait for each other; each place belongs to one block"},
    {": reads", "wrote: without a barrier",
     "a thread reads what another one writes, with no __syncthreads() in between: it may read "
     "before the other has written. Or do two threads handle the same element, because a loop "
     "has the wrong stride?"},
    {": writes", "read: without a barrier",
     "a thread writes what another one reads, with no __syncthreads() in between: memory may be "
     "reused only after all have read it"},
    {": writes", "wrote: without a barrier",
     "several threads write the same place, and which one is last is random: let one thread "
     "write, or give each warp its own place. Or do two threads handle the same element, because "
     "a loop has the wrong stride?"},
    {"", "which no thread of this block has written",
     "shared memory is read before any thread has written it: is a __syncthreads() missing between "
     "the writing and the reading, or in a branch that only some threads take? Or is more read "
     "than there is: a block has blockDim.x / 32 warps, hence as many partial results, not 32"},
    {"", "outside",
     "a thread reaches beyond the end of an array, or before its beginning: every thread must "
     "compare its index with the length of the row or array; and -1 is not an index"},
    {"", "never written",
     "a kernel reads where there is nothing: with 0 rows, no block may access any"},
    {"", "which do not begin at a multiple",
     "several numbers are accessed at once, at an address that is not a multiple of their size: "
     "each array is aligned only as its floats require"},
    {"", "memory of the host",
     "a kernel accesses memory of the host: a GPU sees only its own memory"},
    {"", "", "the emulation stopped the kernel"},
};

/// What entries of rank.cpp mean: the first that is there.
constexpr const char* kProblems[][2] = {
    {"refused",
     "the GPU refuses to start the kernel: a grid has at least one block, and at most 65,535 in "
     "its y and z dimension (2,147,483,647 in x); a block has at most 1,024 threads and 48 KiB"},
    {"fence",
     "memory next to an array was overwritten: compare each index with the length before writing"},
    {"changed", "an input array was changed: the kernel may only read it"},
    {"unsteady",
     "the result depends on which thread comes first: is a sum formed in the order of arrival "
     "(atomicAdd), or does a thread read what another one writes?"},
    {"kept",
     "the very same call, made again or after another, gives a different result: something is kept "
     "from an earlier call. Results depend on the arguments alone; look for static variables, for "
     "work done only the first time, and for variables that are never set"},
};

void expect_no_problem(const Parcel& result) {
  const std::string finding = result.has("finding") ? result.text("finding") : "";
  for (const auto& [verb, words, meaning] : kLessons)
    if (!finding.empty() && finding.find(verb) != std::string::npos &&
        finding.find(words) != std::string::npos)
      stop(fmt::format("{}\n{}", meaning, finding));
  for (const auto& [entry, meaning] : kProblems)
    if (result.has(entry))
      stop(fmt::format("{}\n{}{}", meaning,
                       std::string_view(entry) == "refused" ? "" : "array: ", result.text(entry)));
}

/// One kernel, on the right stream, for which the host does not wait.
void expect_one_kernel(const Parcel& result, bool has_work) {
  if (has_work && result.has("kernels") &&
      result.number("kernels") + result.number("elsewhere") == 0)
    stop(
        "a call started no kernel: the numbers are in the GPU's memory and must be computed there, "
        "by a kernel, not by the host; and a grid of 0 blocks is none (round up)");
  expect_at_most(result, "elsewhere", 0,
                 "the kernel was not started on the stream of the workbook: without an order "
                 "between the streams it runs before its input is there, or after its result is "
                 "read; launch it on lab::cuda::stream()\nkernels on other streams:");
  if (!has_work)
    expect_at_most(result, "kernels", 0,
                   "a call without any number to compute starts a kernel: return first if a size "
                   "is 0\nkernels:");
  expect_at_most(result, "kernels", 1,
                 "a call started more than one kernel: everything belongs in one, so that each "
                 "number is fetched from memory as rarely as possible\nkernels:");
  expect_at_most(result, "early", 0,
                 "the function waits for the GPU: it must start the kernel and return at once, so "
                 "that the host can start the next one\nsynchronisations, and copies to the host:");
  expect_at_most(result, "others", 0,
                 "a call copies or sets memory in addition to its kernel: the one kernel does all "
                 "the work\ncopies:");
}

}  // namespace

/// The emulation is slow, and right kernels differ by factors in how slow.
constexpr double kSlowS = 20;

void judge_kernels(const std::string& scenario, const std::vector<KernelCall>& calls,
                   const Options& options) {
  std::vector<lab::grading::Call> all;
  for (const KernelCall& call : calls) {
    all.push_back({.scenario = scenario, .inputs = {call.input}, .name = call.name});
    all.back().inputs[0].set("fence", options.fence);
    all.back().inputs[0].set("block_step", options.block_step);
  }
  judge_calls(all, {.network = lab::grading::Network::kNone, .threads = 1, .deadline_s = kSlowS},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                expect_no_problem(ranks[0]);
                expect_one_kernel(ranks[0], calls[k].has_work);
                calls[k].judge(ranks[0]);
              });
}

void expect_numbers(Numbers got, const Expected& expected, const Options& options,
                    const Numbers& before) {
  size_t last = 0;  // that was written
  for (size_t i = 0; options.block_step > 1 && i < got.size(); ++i) {
    if (got[i] != (before.empty() ? double{kUntouched} : before[i]))
      last = i;
    else
      got[i] = expected.values[i];
  }
  if (options.block_step > 1 && last + 1000 < got.size())
    stop(
        fmt::format("{}: none was written after number {} of {}: is the grid large enough? If a "
                    "block has several rows, does one of the rows end the loop early?",
                    expected.what, last, got.size()));
  const std::string message = difference(got, expected);
  if (message.empty()) return;
  if (const auto first = std::ranges::find(got, double{kUntouched}); first != got.end()) {
    const auto never = std::ranges::count(got, double{kUntouched});
    stop(fmt::format("{}: {} of {} {} never written, the first of them {}", expected.what, never,
                     got.size(), never == 1 ? "was" : "were",
                     expected.name(static_cast<size_t>(first - got.begin()))));
  }
  Expected unexplained = expected;
  unexplained.mistakes = {};
  unexplained.if_not_finite = {};
  const bool explained = difference(got, unexplained) != message;
  stop(explained || options.lesson.empty() ? message : options.lesson + "\n" + message);
}

void expect_at_most(const Parcel& result, const std::string& count, double limit,
                    const std::string& lesson) {
  if (!result.has(count) || result.number(count) <= limit) return;
  stop(fmt::format("{} {}; at most {} are allowed", lesson, result.number(count), limit));
}

void expect_shared_row(const Parcel& result, size_t columns) {
  if (columns < kLongRow) return;
  const size_t most = columns / 4;
  for (const auto& [count, verb] : {std::pair{"most_read", "read"}, {"most_written", "written"}})
    expect_at_most(
        result, count, static_cast<double>(most),
        fmt::format(
            "one thread goes over a whole row: the threads of the block must share its work. "
            "Give each the columns threadIdx.x, threadIdx.x + {}, ..., and bring their "
            "results together\nrow of {}, numbers that a thread has {}:",
            kThreads, columns, verb));
}

std::function<std::string(size_t)> place_in_row(size_t per_row, const std::string& element,
                                                const std::string& row) {
  return [=](size_t i) {
    const std::string place = fmt::format("{} {}", row, i / per_row);
    return element.empty() ? place : fmt::format("{}, {} {}", place, element, i % per_row);
  };
}

std::vector<RowPart> parts_of_row(size_t columns) {
  constexpr size_t kBlock = kThreads;
  std::vector<RowPart> parts = {
      {"each thread has seen only a part of its row: are the parts combined, and in all threads?",
       [](size_t c, size_t thread) { return c % kBlock == thread; }},
      {"each thread keeps only the last of its columns: it should add them up",
       [=](size_t c, size_t) { return c + kBlock >= columns; }},
      {"half of the sum is missing: that of odd lanes. Is the last step of the shuffles, by 1, "
       "left out?",
       [](size_t c, size_t) { return c % 2 == 0; }},
      {"half of the sum is missing: that of lanes 16 to 31. Is the first step of the shuffles, by "
       "16, left out?",
       [](size_t c, size_t) { return c % 32 < 16; }},
      {"rows whose length is not a multiple of the warp (32 columns) are wrong: a warp that is "
       "only partly filled takes part, too",
       [=](size_t c, size_t) { return c % kBlock < std::min(columns, kBlock) / 32 * 32; }},
      {"rows longer than a warp (32 columns) are wrong: only what the first warp has seen is in "
       "the result; are the partial results of all warps combined, and in all threads?",
       [](size_t c, size_t) { return c % kBlock < 32; }},
      {"rows longer than the block (128 threads) are wrong: only the first column of each thread "
       "is in the result; a thread has the columns threadIdx.x, threadIdx.x + 128, ...",
       [](size_t c, size_t) { return c < kBlock; }},
      {"rows whose length is not a multiple of the block (128 threads) are wrong: only whole "
       "iterations of the loop are in the result; the columns of the last, shorter one count too",
       [=](size_t c, size_t) { return c < columns / kBlock * kBlock; }}};
  for (const size_t limit : {1024, 2048, 4096, 8192})
    parts.push_back(
        {fmt::format(
             "rows longer than {} columns are wrong: the columns after these are not in the result",
             limit),
         [=](size_t c, size_t) { return c < limit; }});
  for (const size_t group : {2, 4, 8})
    for (const size_t rest : {0, 1})
      parts.push_back({fmt::format("the loop takes {} columns per thread at a time: of those that "
                                   "are left over at its end, {} in the result",
                                   group, rest == 0 ? "none is" : "only one is"),
                       [=](size_t c, size_t) {
                         const size_t own = (columns - 1 - c % kBlock) / kBlock + 1;
                         return c / kBlock < own / group * group + rest;
                       }});
  return parts;
}

Numbers sums_of(const RowPart& part, const Numbers& terms) {
  if (!part.has) return Numbers(kThreads, std::accumulate(terms.begin(), terms.end(), 0.0));
  Numbers sums(kThreads, 0.0);
  for (size_t thread = 0; thread < std::min(sums.size(), terms.size()); ++thread)
    for (size_t c = 0; c < terms.size(); ++c) sums[thread] += part.has(c, thread) ? terms[c] : 0;
  return sums;
}

}  // namespace lab01cuda
