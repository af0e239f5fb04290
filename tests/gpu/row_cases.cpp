// The operations that work row by row: RMSNorm, rope, SwiGLU.
#include <fmt/format.h>

#include "common/ops/ops.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

constexpr double kTolerance = 2e-6;

OpCase rmsnorm_case(int64_t rows, int64_t columns, const Placement& place) {
  const auto run = [=](Device device) {
    const auto inset = [&](uint64_t seed) {
      return Inset(device, rows, columns, place.left, place.right, seed);
    };
    const Inset x = inset(1);
    const Inset y = inset(2);
    const Inset again = inset(3);
    const Inset dy = inset(4);
    const Inset dx = inset(5);
    const Tensor weight = random_tensor({columns + 1}, 6)
                              .to(device)
                              .columns(place.left % 2, columns + place.left % 2);
    const Tensor dweight = random_tensor({columns}, 7).to(device);
    const Tensor inverse_rms = random_tensor({rows}, 8).to(device);
    rmsnorm_forward(x.inner, weight, 1e-3F, y.inner, inverse_rms);
    rmsnorm_apply(x.inner, weight, inverse_rms, again.inner);
    rmsnorm_backward(dy.inner, x.inner, weight, inverse_rms, dx.inner, dweight);
    return std::vector<Tensor>{y.all, inverse_rms, again.all, dx.all, dweight};
  };
  return {fmt::format("rmsnorm_{}x{}_{}", rows, columns, place.name), run, kTolerance};
}

OpCase rope_case(int64_t heads, int64_t head_dim, const Placement& place) {
  const auto run = [=](Device device) {
    constexpr int64_t kLength = 5;
    const Tensor table = rope_table(3 + kLength, head_dim, 100.0F).to(device);
    const Inset x(device, 3 * kLength, heads * head_dim, place.left, place.right, 1);
    const Inset back(device, 3 * kLength, heads * head_dim, place.left, place.right, 2);
    rope(x.inner, table, kLength, 3, Rotation::kForward);
    rope(back.inner, table, kLength, 0, Rotation::kBackward);
    return std::vector<Tensor>{x.all, back.all};
  };
  return {fmt::format("rope_{}x{}_{}", heads, head_dim, place.name), run, kTolerance};
}

OpCase swiglu_case(int64_t rows, int64_t columns, const Placement& place) {
  const auto run = [=](Device device) {
    const auto inset = [&](int64_t width, uint64_t seed) {
      return Inset(device, rows, width, place.left, place.right, seed);
    };
    const Inset gate_up = inset(2 * columns, 1);
    const Inset y = inset(columns, 2);
    const Inset dy = inset(columns, 3);
    scale(gate_up.all, 30.0F);  // from where e^-g is large to where it vanishes
    swiglu_forward(gate_up.inner, y.inner);
    swiglu_backward(gate_up.inner, dy.inner);
    return std::vector<Tensor>{y.all, gate_up.all, dy.all};
  };
  return {fmt::format("swiglu_{}x{}_{}", rows, columns, place.name), run, kTolerance};
}

}  // namespace

std::vector<OpCase> row_cases() {
  std::vector<OpCase> cases;
  for (const Placement& place : placements()) {
    for (const int64_t columns : {1, 31, 33, 288}) {
      for (const int64_t rows : {0, 1, 9}) {
        cases.push_back(rmsnorm_case(rows, columns, place));
        cases.push_back(swiglu_case(rows, columns, place));
      }
    }
    cases.push_back(rmsnorm_case(200, 36, place));  // several slabs
    for (const int64_t head_dim : {2, 6, 8, 48}) cases.push_back(rope_case(3, head_dim, place));
  }
  return cases;
}

}  // namespace lab::test
