// Rows of a table, with padding, and with tokens that come again and again.
#include <fmt/format.h>

#include <random>

#include "common/ops/ops.h"
#include "common/tensor/device_tokens.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

struct Size {
  int64_t positions, vocabulary, columns;
};

/// A tenth is padding; small tokens are frequent.
std::vector<int32_t> tokens_for(const Size& size) {
  std::mt19937_64 engine(9);
  std::vector<int32_t> tokens;
  for (int64_t n = 0; n < size.positions; ++n) {
    const auto limit = 1 + engine() % static_cast<uint64_t>(size.vocabulary);
    tokens.push_back(engine() % 10 == 0 ? -1 : static_cast<int32_t>(engine() % limit));
  }
  return tokens;
}

OpCase embedding_case(const Size& size, const Placement& place) {
  const auto run = [=](Device device) {
    const auto inset = [&](int64_t rows, uint64_t seed) {
      return Inset(device, rows, size.columns, place.left, place.right, seed);
    };
    DeviceTokens tokens(device);
    tokens.assign(tokens_for(size));
    const Inset table = inset(size.vocabulary, 1);
    const Inset y = inset(size.positions, 2);
    const Inset dy = inset(size.positions, 3);
    const Inset dtable = inset(size.vocabulary, 4);
    embedding_forward(tokens.tokens(), table.inner, y.inner);
    embedding_backward(tokens.tokens(), dy.inner, dtable.inner);
    return std::vector<Tensor>{y.all, dtable.all};
  };
  // Both sides add in the order of the positions: not a bit may differ.
  return {fmt::format("embedding_{}_of_{}x{}_{}", size.positions, size.vocabulary, size.columns,
                      place.name),
          run, 0.0};
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  for (const Size& size : {Size{0, 5, 8}, Size{1, 1, 1}, Size{40, 3, 31}, Size{300, 20, 33},
                           Size{64, 1000, 288}, Size{9, 4, 520}})
    for (const Placement& place : placements()) cases.push_back(embedding_case(size, place));
  return cases;
}

}  // namespace lab::test
