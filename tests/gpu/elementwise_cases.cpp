// Element-wise operations, and the sum of squares.
#include <fmt/format.h>

#include "common/ops/ops.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

constexpr double kTolerance = 2e-7;  // a rounding or two

/// `count` elements, the first of them `offset` elements into the memory.
OpCase vector_case(int64_t count, int64_t offset) {
  const auto run = [=](Device device) {
    const auto vector = [&](uint64_t seed) {
      return random_tensor({offset + count + 5}, seed).to(device);
    };
    const auto inner = [&](const Tensor& t) { return t.columns(offset, offset + count); };
    const Tensor x = vector(1);
    const Tensor scaled = vector(2);
    const Tensor sum = vector(3);
    const Tensor sum_of_all = vector(4);
    const Tensor filled = vector(5);
    scale(inner(scaled), 1.7F);
    add_scaled(inner(x), -0.3F, inner(sum));
    add(inner(x), inner(sum_of_all));
    inner(filled).fill(2.5F);
    return std::vector<Tensor>{scaled, sum, sum_of_all, filled};
  };
  return {fmt::format("vector_{}_from_{}", count, offset), run, kTolerance};
}

OpCase matrix_case(int64_t rows, int64_t columns, const Placement& place) {
  const auto run = [=](Device device) {
    const auto inset = [&](uint64_t seed) {
      return Inset(device, rows, columns, place.left, place.right, seed);
    };
    const Inset x = inset(1);
    const Inset y = inset(2);
    const Inset filled = inset(3);
    add(x.inner, y.inner);
    filled.inner.fill(-1.5F);
    return std::vector<Tensor>{y.all, filled.all};
  };
  return {fmt::format("matrix_{}x{}_{}", rows, columns, place.name), run, kTolerance};
}

/// All 53 bits of a number, in two float32.
Tensor in_two_parts(double value) {
  const auto rounded = static_cast<float>(value);
  return Tensor::from({rounded, static_cast<float>(value - static_cast<double>(rounded))}, {2});
}

OpCase sum_of_squares_case(int64_t count, int64_t offset) {
  const auto run = [=](Device device) {
    const Tensor x = random_tensor({offset + count}, 1).to(device).columns(offset, offset + count);
    return std::vector<Tensor>{in_two_parts(sum_of_squares(x))};
  };
  // In double: the order of the additions hardly shows.
  return {fmt::format("sum_of_squares_{}_from_{}", count, offset), run, 1e-12};
}

/// Several tensors in one call: the memory for the sums of blocks is used by one after the other.
OpCase sums_of_squares_case() {
  const auto run = [](Device device) {
    std::vector<Tensor> tensors;
    for (const int64_t count : {9000, 0, 5, 20000})
      tensors.push_back(random_tensor({count}, static_cast<uint64_t>(count)).to(device));
    std::vector<Tensor> sums;
    for (const double sum : sums_of_squares(tensors)) sums.push_back(in_two_parts(sum));
    return sums;
  };
  return {"sums_of_squares", run, 1e-12};
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  cases.push_back(sums_of_squares_case());
  for (const int64_t offset : {0, 1, 4}) {
    for (const int64_t count : {0, 1, 3, 31, 1024, 1027})
      cases.push_back(vector_case(count, offset));
    for (const int64_t count : {0, 1, 33, 9000})
      cases.push_back(sum_of_squares_case(count, offset));
  }
  for (const Placement& place : placements())
    for (const int64_t columns : {1, 31, 288})
      for (const int64_t rows : {0, 1, 9}) cases.push_back(matrix_case(rows, columns, place));
  return cases;
}

}  // namespace lab::test
