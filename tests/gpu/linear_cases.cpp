// Matrix products.
#include <fmt/format.h>

#include "common/ops/ops.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

constexpr double kTolerance = 2e-6;

struct Size {
  int64_t n, in, out;
};

OpCase linear_case(const Size& size, const Placement& place) {
  const auto run = [=](Device device) {
    const auto inset = [&](int64_t rows, int64_t columns, uint64_t seed) {
      return Inset(device, rows, columns, place.left, place.right, seed);
    };
    const Inset x = inset(size.n, size.in, 1);
    const Inset w = inset(size.out, size.in, 2);
    const Inset dy = inset(size.n, size.out, 3);
    const Inset y = inset(size.n, size.out, 4);
    const Inset more_y = inset(size.n, size.out, 5);
    const Inset dx = inset(size.n, size.in, 6);
    const Inset more_dx = inset(size.n, size.in, 7);
    const Inset dw = inset(size.out, size.in, 8);
    linear_forward(x.inner, w.inner, y.inner);
    linear_forward(x.inner, w.inner, more_y.inner, /*accumulate=*/true);
    linear_backward_input(dy.inner, w.inner, dx.inner);
    linear_backward_input(dy.inner, w.inner, more_dx.inner, /*accumulate=*/true);
    linear_backward_weight(dy.inner, x.inner, dw.inner);
    return std::vector<Tensor>{y.all, more_y.all, dx.all, more_dx.all, dw.all};
  };
  return {fmt::format("linear_{}x{}x{}_{}", size.n, size.in, size.out, place.name), run,
          kTolerance};
}

}  // namespace

std::vector<OpCase> linear_cases() {
  std::vector<OpCase> cases;
  for (const Size& size : {Size{1, 1, 1}, Size{3, 5, 7}, Size{0, 4, 3}, Size{3, 0, 2},
                           Size{33, 31, 65}, Size{20, 288, 48}})
    for (const Placement& place : placements()) cases.push_back(linear_case(size, place));
  return cases;
}

}  // namespace lab::test
