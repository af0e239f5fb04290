// What the tests of lab 10 share: random tensors, slices of them, and messages.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/model/slice.h"
#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"
#include "tests/grading/verdict_session.h"

namespace lab10 {

inline const std::string kKeptWeights =
    "computed with the weights of an earlier call: an optimizer changes them in their place, so "
    "keep nothing between calls";

using lab::Tensor;
using lab::grading::draw_tensor;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

inline lab::TensorSlice slice(size_t rank, size_t ranks) {
  return {.rank = static_cast<int>(rank), .ranks = static_cast<int>(ranks)};
}

inline Numbers numbers_of(const Tensor& tensor) { return lab::grading::to_doubles(tensor.clone()); }

/// a + factor * b.
inline Numbers plus(Numbers a, const Numbers& b, double factor = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

/// How exactly a tensor is judged, and what is said of wrong numbers that no mistake explains.
struct Judged {
  double terms = 100;
  double least = 1;
  std::string unexplained = {};
  std::string where = {};  // what comes before "row 0, column 0"
  std::string if_not_finite = {};
};

/// Ends the test as failed unless the tensor is right: up to the rounding of sums of `terms`
/// numbers that are as large as the largest of `right`, or as `least`.
inline void expect_tensor(const std::string& what, const Tensor& got, const Numbers& right,
                          const std::function<std::vector<Mistake>()>& mistakes = {},
                          const Judged& judged = {}) {
  const double size = std::max(lab::grading::largest_magnitude(right), judged.least);
  const int64_t width = std::max<int64_t>(got.size(-1), 1);
  lab::grading::expect(
      numbers_of(got),
      {.what = what,
       .values = right,
       .tolerance = {4e-7 * std::sqrt(judged.terms) * size + 2e-6 * size},
       .name =
           [width, where = judged.where](size_t i) {
             const auto w = static_cast<size_t>(width);
             return fmt::format("{}row {}, column {}", where, i / w, i % w);
           },
       .mistakes = mistakes,
       .if_not_finite = judged.if_not_finite.empty()
                            ? what + " has numbers that nobody has computed: a tensor was read "
                                     "before it was filled, or exp overflowed"
                            : judged.if_not_finite,
       .unexplained = judged.unexplained});
}

/// What is wrong with the messages of `function`, which calls one all_reduce of so many numbers, or
/// none; empty if nothing is.
inline std::string wrong_messages(const std::string& function, const Parcel& sent, int count,
                                  int64_t numbers) {
  const std::vector<Operation> operations = operations_of(sent);
  const auto bytes = static_cast<uint64_t>(numbers) * sizeof(float);
  bool right = operations.size() == static_cast<size_t>(count);
  for (const Operation& operation : operations)
    right = right && operation.kind == lab::OpKind::kAllReduce && operation.bytes == bytes;
  if (right) return "";
  return fmt::format(
      "{} sends {}; it should send {}. It called: {}", function,
      operations.size() > static_cast<size_t>(count)   ? "more than it needs"
      : operations.size() < static_cast<size_t>(count) ? "too little"
                                                       : "something else",
      count == 0 ? std::string("nothing")
                 : fmt::format("{} all_reduce of {} bytes ({} numbers)", count, bytes, numbers),
      operations.empty() ? "nothing" : in_words(operations));
}

/// Ends the test as failed unless `function` has sent what it should.
inline void expect_all_reduces(const std::string& function, const Parcel& sent, int count,
                               int64_t numbers) {
  if (const std::string wrong = wrong_messages(function, sent, count, numbers); !wrong.empty())
    stop(wrong);
}

/// Makes the calls in several groups of ranks at once, as in a mesh with several stages; a call's
/// inputs are those of one group. Judges each group.
inline void judge_in_groups(std::vector<lab::grading::Call> calls, size_t groups,
                            const lab::grading::JobOptions& options,
                            const lab::grading::JudgeCall& judge) {
  if (groups == 1) return judge_calls(calls, options, judge);
  for (lab::grading::Call& call : calls) {
    const std::vector<Parcel> inputs = std::move(call.inputs);
    call.inputs.clear();
    for (size_t r = 0; r < groups * inputs.size(); ++r) {
      const size_t group = r / inputs.size();
      call.inputs.push_back(inputs[r % inputs.size()]);
      call.inputs.back().set("group", static_cast<double>(group));
    }
    call.name += fmt::format("; in {} groups of {} ranks", groups, inputs.size());
  }
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    const auto count = static_cast<std::ptrdiff_t>(ranks.size() / groups);
    for (auto first = ranks.begin(); first != ranks.end(); first += count) {
      const std::string wrong = lab::grading::why_stopped([&] {
        judge(k, {first, first + count});
      });
      if (!wrong.empty())
        stop((first == ranks.begin()
                  ? ""
                  : "right in the group of the world's first ranks, wrong in another one: a rank's "
                    "number is ranks.rank(), not that in the world\n") +
             wrong);
    }
  });
}

/// The first text that is not empty.
inline std::string first_of(const std::string& a, const std::string& b) {
  return a.empty() ? b : a;
}

inline void set_model(const lab::LlamaConfig& c, Parcel& input) {
  const auto size = [](int64_t n) { return static_cast<double>(n); };
  input.set("model", Numbers{size(c.vocab_size), size(c.dim), size(c.heads), size(c.kv_heads),
                             size(c.layers), size(c.hidden_dim), size(c.context),
                             double{c.init_std}, c.tied_head ? 1.0 : 0.0});
}

}  // namespace lab10
