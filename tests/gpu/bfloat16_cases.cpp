// Operations on tensors of bfloat16, against float32 on the CPU with the same numbers. What comes
// out in bfloat16 may be off by its rounding; what comes out in float32 is as exact as ever.
#include <fmt/format.h>

#include "common/ops/ops.h"
#include "tests/gpu/bfloat16_numbers.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

constexpr double kFloatTolerance = 2e-6;
constexpr double kRoundedTolerance = kBfloat16Error + kFloatTolerance;

/// A matrix of bfloat16 inside a wider one.
struct RoundedInset {
  RoundedInset(Device device, int64_t rows, int64_t columns, const Placement& place, uint64_t seed,
               float size = 1.0F)
      : all(bfloat16_on(device,
                        rounded_random({rows, place.left + columns + place.right}, seed, size))),
        inner(all.columns(place.left, place.left + columns)) {}

  Tensor all;
  Tensor inner;
};

struct Size {
  int64_t n, in, out;
};

/// Weights are float32 and rounded for the product: here to themselves.
OpCase linear_case(const Size& size, const Placement& place) {
  const auto run = [=](Device device) {
    const RoundedInset x(device, size.n, size.in, place, 1);
    const RoundedInset dy(device, size.n, size.out, place, 2);
    const RoundedInset y(device, size.n, size.out, place, 3);
    const RoundedInset dx(device, size.n, size.in, place, 4);
    const Tensor w = rounded_random({size.out, size.in}, 5).to(device);
    linear_forward(x.inner, w, y.inner);
    linear_backward_input(dy.inner, w, dx.inner);
    return std::vector<Tensor>{y.all, dx.all};
  };
  return {fmt::format("bfloat16_linear_{}x{}x{}_{}", size.n, size.in, size.out, place.name), run,
          kRoundedTolerance};
}

OpCase linear_sums_case(const Size& size, const Placement& place) {
  const auto run = [=](Device device) {
    const RoundedInset x(device, size.n, size.in, place, 1);
    const RoundedInset dy(device, size.n, size.out, place, 2);
    const Tensor w = rounded_random({size.out, size.in}, 3).to(device);
    const Tensor y = random_tensor({size.n, size.out}, 4).to(device);
    const Tensor float_dy = rounded_random({size.n, size.out}, 5).to(device);
    const Tensor dw = random_tensor({size.out, size.in}, 6).to(device);
    linear_forward(x.inner, w, y, /*accumulate=*/true);
    linear_backward_weight(dy.inner, x.inner, dw);
    linear_backward_weight(float_dy, x.inner, dw);
    return std::vector<Tensor>{y, dw};
  };
  return {fmt::format("bfloat16_linear_sums_{}x{}x{}_{}", size.n, size.in, size.out, place.name),
          run, kFloatTolerance};
}

OpCase rmsnorm_case(int64_t rows, int64_t columns, const Placement& place) {
  const auto run = [=](Device device) {
    const Inset x(device, rows, columns, place.left, place.right, 1);
    const RoundedInset y(device, rows, columns, place, 2);
    const RoundedInset again(device, rows, columns, place, 3);
    const Tensor weight = random_tensor({columns}, 4).to(device);
    const Tensor inverse_rms = random_tensor({rows}, 5).to(device);
    rmsnorm_forward(x.inner, weight, 1e-3F, y.inner, inverse_rms);
    rmsnorm_apply(x.inner, weight, inverse_rms, again.inner);
    return std::vector<Tensor>{y.all, inverse_rms, again.all};
  };
  return {fmt::format("bfloat16_rmsnorm_{}x{}_{}", rows, columns, place.name), run,
          kRoundedTolerance};
}

OpCase rmsnorm_backward_case(int64_t rows, int64_t columns, const Placement& place) {
  const auto run = [=](Device device) {
    const Inset x(device, rows, columns, place.left, place.right, 1);
    const RoundedInset dy(device, rows, columns, place, 2);
    const Inset dx(device, rows, columns, place.left, place.right, 3);
    const Tensor weight = random_tensor({columns}, 4).to(device);
    const Tensor inverse_rms = random_tensor({rows}, 5).to(device);
    const Tensor dweight = random_tensor({columns}, 6).to(device);
    rmsnorm_backward(dy.inner, x.inner, weight, inverse_rms, dx.inner, dweight);
    return std::vector<Tensor>{dx.all, dweight};
  };
  return {fmt::format("bfloat16_rmsnorm_backward_{}x{}_{}", rows, columns, place.name), run,
          kFloatTolerance};
}

OpCase rope_case(int64_t heads, int64_t head_dim, const Placement& place) {
  const auto run = [=](Device device) {
    constexpr int64_t kLength = 5;
    const Tensor table = rope_table(3 + kLength, head_dim, 100.0F).to(device);
    const RoundedInset x(device, 3 * kLength, heads * head_dim, place, 1);
    rope(x.inner, table, kLength, 3, Rotation::kForward);
    return std::vector<Tensor>{x.all};
  };
  return {fmt::format("bfloat16_rope_{}x{}_{}", heads, head_dim, place.name), run,
          kRoundedTolerance};
}

OpCase swiglu_case(int64_t rows, int64_t columns, const Placement& place) {
  const auto run = [=](Device device) {
    const RoundedInset gate_up(device, rows, 2 * columns, place, 1, 30.0F);
    const RoundedInset y(device, rows, columns, place, 2);
    const RoundedInset dy(device, rows, columns, place, 3);
    swiglu_forward(gate_up.inner, y.inner);
    swiglu_backward(gate_up.inner, dy.inner);
    return std::vector<Tensor>{y.all, gate_up.all, dy.all};
  };
  return {fmt::format("bfloat16_swiglu_{}x{}_{}", rows, columns, place.name), run,
          kRoundedTolerance};
}

}  // namespace

std::vector<OpCase> bfloat16_cases() {
  std::vector<OpCase> cases;
  for (const Placement& place : placements()) {
    for (const Size& size : {Size{1, 1, 1}, Size{3, 5, 7}, Size{20, 40, 48}}) {
      cases.push_back(linear_case(size, place));
      cases.push_back(linear_sums_case(size, place));
    }
    for (const int64_t columns : {3, 33, 288}) {
      cases.push_back(rmsnorm_case(9, columns, place));
      cases.push_back(rmsnorm_backward_case(9, columns, place));
      cases.push_back(swiglu_case(9, columns, place));
    }
    cases.push_back(rmsnorm_backward_case(200, 36, place));  // several slabs
    for (const int64_t head_dim : {2, 6, 8, 48}) cases.push_back(rope_case(3, head_dim, place));
  }
  for (OpCase& each : cases) each.needs = Precision::kBfloat16;
  return cases;
}

}  // namespace lab::test
