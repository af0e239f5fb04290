// Task 2: linear layers whose output, or whose input, is divided.
#include <gtest/gtest.h>

#include <limits>

#include "tests/labs/10_tensor_parallel/rank_scenarios.h"
#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10::task2 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

/// Row-major.
struct Matrix {
  explicit Matrix(const Tensor& t) : rows(t.size(0)), columns(t.size(1)), values(numbers_of(t)) {}
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c), 0.0) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
  int64_t rows, columns;
  Numbers values;
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix b(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) b.at(j, i) = a.at(i, j);
  return b;
}

struct Case {
  bool column = true;
  int64_t n = 3;
  int64_t in = 4;
  int64_t out = 6;
  double leftover = 0;
  bool zeros = false;   // the last rank's slice of what is divided holds zeros
  double before = 777;  // what y and dx hold
  uint64_t seed = 1;

  std::string name() const {
    return fmt::format("{}_linear, x [{}, {}], W [{}, {}]{}{}", column ? "column" : "row", n, in,
                       out, in, leftover != 0 ? ", gradients left over" : "",
                       zeros ? ", zeros on the last rank" : "");
  }
};

/// The whole tensors, and their slices on each rank.
struct Whole {
  Whole(const Case& c, size_t ranks)
      : x(draw_tensor({c.n, c.in}, 1.0, c.seed)),
        weight(draw_tensor({c.out, c.in}, 1.0, c.seed + 1)),
        dy(draw_tensor({c.n, c.out}, 1.0, c.seed + 2)) {
    const int64_t divided = c.column ? c.out : c.in;
    if (c.zeros)
      (c.column ? dy : x)
          .columns(lab::range_of(divided, slice(ranks - 1, ranks)).first, divided)
          .fill(0.0F);
    for (size_t r = 0; r < ranks; ++r) {
      const lab::Range range = lab::range_of(divided, slice(r, ranks));
      const auto rows = [&](const Tensor& t) { return t.rows(range.first, range.last).clone(); };
      const auto columns = [&](const Tensor& t) {
        return t.columns(range.first, range.last).clone();
      };
      xs.push_back(c.column ? x : columns(x));
      weights.push_back(c.column ? rows(weight) : columns(weight));
      dys.push_back(c.column ? columns(dy) : dy);
    }
  }
  Tensor x, weight, dy;
  std::vector<Tensor> xs, weights, dys;
};

/// With the leftovers of all ranks. Meaningful only if all slices have the same size.
Numbers summed_weight_gradient(const Case& c, const Whole& whole, size_t ranks) {
  Numbers sum;
  for (size_t r = 0; r < ranks; ++r) {
    Numbers own = product(transposed(Matrix(whole.dys[r])), Matrix(whole.xs[r])).values;
    for (double& number : own) number += c.leftover;
    if (sum.size() != own.size()) sum.assign(own.size(), 0.0);
    sum = plus(sum, own);
  }
  return sum;
}

constexpr char kTakesRounded[] =
    " multiplies by weight.rounded, which is for GPUs: the weights are in weight.value";

void judge(const Case& c, const std::vector<Parcel>& ranks) {
  const size_t n = ranks.size();
  const Whole whole(c, n);
  const auto times = static_cast<double>(n);
  const auto terms = static_cast<double>(std::max({c.in, c.out, c.n}));
  const std::string forward = c.column ? "column_linear_forward" : "row_linear_forward";
  const std::string backward = c.column ? "column_linear_backward" : "row_linear_backward";
  const int y_sums = !c.column && n > 1 ? 1 : 0;
  const int dx_sums = c.column && n > 1 ? 1 : 0;
  Numbers y_sum(static_cast<size_t>(c.n * c.out), 0.0);
  Numbers dx_sum(static_cast<size_t>(c.n * c.in), 0.0);
  for (size_t r = 0; r < n; ++r) {
    if (!c.column)
      y_sum =
          plus(y_sum, product(Matrix(whole.xs[r]), transposed(Matrix(whole.weights[r]))).values);
    else
      dx_sum = plus(dx_sum, product(Matrix(whole.dys[r]), Matrix(whole.weights[r])).values);
  }
  for (size_t r = 0; r < n; ++r) {
    const Parcel forward_sent = ranks[r].part("forward.sent");
    const Parcel backward_sent = ranks[r].part("backward.sent");
    const std::string wrong_forward = wrong_messages(forward, forward_sent, y_sums, c.n * c.out);
    const std::string wrong_backward = wrong_messages(backward, backward_sent, dx_sums, c.n * c.in);
    const auto what = [&](const std::string& function, const char* tensor) {
      return fmt::format("{}: {} on rank {}", function, tensor, r);
    };
    const Matrix x(whole.xs[r]);
    const Matrix w(whole.weights[r]);
    const Matrix dy(whole.dys[r]);
    const Numbers y_own = product(x, transposed(w)).values;
    const Numbers dx_own = product(dy, w).values;
    expect_tensor(
        what(forward, "y"), ranks[r].tensor("y"), c.column ? y_own : y_sum,
        [&]() -> std::vector<Mistake> {
          const Mistake of_before{
              plus(Numbers(y_own.size(), 0.0), c.column ? y_own : y_sum, kWeightsBefore),
              forward + ": " + kKeptWeights};
          const Mistake of_rounded{
              plus(Numbers(y_own.size(), 0.0), c.column ? y_own : y_sum, kRounded),
              forward + kTakesRounded};
          if (c.column)
            return {of_before,
                    of_rounded,
                    {plus(Numbers(y_own.size(), c.before), y_own),
                     forward + " adds to what y held; it must overwrite y"}};
          Numbers all_left(y_sum.size(), times * c.before);
          return {of_before,
                  of_rounded,
                  {y_own, forward + ": only this rank's summand: y is the sum over all "
                                    "ranks (sum_over_ranks)"},
                  {plus(all_left, y_sum), forward + " adds to what y held; it must overwrite y"}};
        },
        {.terms = terms, .unexplained = wrong_forward});
    if (!wrong_forward.empty()) stop(wrong_forward);
    expect_tensor(
        what(backward, "dx"), ranks[r].tensor("dx"), c.column ? dx_sum : dx_own,
        [&]() -> std::vector<Mistake> {
          const double left = c.column ? times * c.before : c.before;  // added before the sum
          std::vector<Mistake> all{
              {plus(Numbers(dx_own.size(), left), c.column ? dx_sum : dx_own),
               backward + " adds to what dx held; it must overwrite dx"},
              {plus(Numbers(dx_own.size(), 0.0), c.column ? dx_sum : dx_own, kWeightsBefore),
               backward + ": " + kKeptWeights},
              {plus(Numbers(dx_own.size(), 0.0), c.column ? dx_sum : dx_own, kRounded),
               backward + kTakesRounded}};
          if (c.column) {
            all.push_back({dx_own, backward + ": dx is only what has passed through this rank's "
                                              "slice: the gradient of a copy is the sum over the "
                                              "ranks (copy_to_ranks)"});
            return all;
          }
          Numbers multiple = dx_own;
          for (double& value : multiple) value *= times;
          all.push_back({multiple, backward + " sums over the ranks what is the same on all of "
                                              "them: the gradient of a sum passes to each summand "
                                              "as it is"});
          return all;
        },
        {.terms = terms, .unexplained = wrong_backward});
    const Numbers leftover(static_cast<size_t>(whole.weights[r].numel()), c.leftover);
    const Numbers own = product(transposed(dy), x).values;
    expect_tensor(
        what(backward, "the gradient of the weight"), ranks[r].tensor("dweight"),
        plus(own, leftover),
        [&]() -> std::vector<Mistake> {
          return {{own, backward + ": the gradient of the weight is overwritten; it is "
                                   "added up over microbatches"},
                  {leftover, backward + " leaves the gradient of the weight as it was"},
                  {plus(leftover, own, times),
                   backward + ": the gradient of the weight is counted once per rank"},
                  {summed_weight_gradient(c, whole, n),
                   backward + ": the gradient of the weight is summed over the ranks, as with data "
                              "parallelism: here each rank has a weight of its own"}};
        },
        {.terms = terms, .unexplained = wrong_backward});
    if (!wrong_backward.empty()) stop(wrong_backward);
    expect_tensor(what(backward, "x, which is only read,"), ranks[r].tensor("x"),
                  numbers_of(whole.xs[r]));
    expect_tensor(what(backward, "dy, which is only read,"), ranks[r].tensor("dy"),
                  numbers_of(whole.dys[r]));
    expect_tensor(what(backward, "the weight, which is only read,"), ranks[r].tensor("weight"),
                  numbers_of(whole.weights[r]));
  }
}

void expect_linear(size_t n, uint64_t seed, JobOptions options, size_t groups = 1) {
  options.given = {"1"};
  const uint64_t drawn = seed + 1000 * lab::grading::scenario_seed();
  const auto width = static_cast<int64_t>(n);
  std::vector<Case> cases;
  for (const bool column : {true, false}) {
    cases.push_back({column, 3, 2 * width, 3 * width, 0});
    cases.push_back({column, 1, width, width, 0.5});
    cases.push_back({column, 7, 5 * width, 2 * width, -1.25});
    cases.push_back({column, 3, 2 * width, 3 * width, 0});  // the same shapes, other numbers
    cases.push_back({column, 3, 2 * width, 3 * width, 0, true});
    cases.push_back({.column = column,
                     .n = 2,
                     .in = 3 * width,
                     .out = width,
                     .before = std::numeric_limits<double>::quiet_NaN()});
    cases.push_back({column, 131, width, 2 * width, 0});  // what is done in blocks leaves a rest
    cases.push_back({column, 301, column ? 240 : width, column ? width : 240, 0});  // 289 kB
    // Vocabularies need not be divisible.
    if (column) cases.push_back({column, 4, 3, 2 * width + 1, 0});
  }
  std::vector<Call> calls;
  for (Case& c : cases) {
    c.seed = drawn + 10 * calls.size();
    const Whole whole(c, n);
    Call call{.scenario = "linear", .inputs = std::vector<Parcel>(n), .name = c.name()};
    for (size_t r = 0; r < n; ++r) {
      Parcel& input = call.inputs[r];
      input.set("column", c.column ? 1 : 0);
      input.set("x", whole.xs[r]);
      input.set("weight", whole.weights[r]);
      input.set("dy", whole.dys[r]);
      const Tensor leftover = Tensor::empty(whole.weights[r].shape());
      leftover.fill(static_cast<float>(c.leftover));
      input.set("leftover", leftover);
      input.set("before", c.before);
    }
    calls.push_back(call);
  }
  judge_in_groups(calls, groups, options,
                  [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

TEST(Task2, TwoRanksLateMessages) { expect_linear(2, 21, late_messages(21)); }
TEST(Task2, GroupsOfTwoRanks) { expect_linear(2, 25, late_messages(25), 2); }
TEST(Task2, SixRanks) { expect_linear(6, 24, late_messages(24)); }
TEST(Task2, OneRankIsAnOrdinaryLayer) { expect_linear(1, 23, late_messages(23)); }
TEST(Task2, ThreeRanksOverGloo) { expect_linear(3, 22, {}); }

}  // namespace
}  // namespace lab10::task2
