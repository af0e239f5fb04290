// Attention of bfloat16 on tensor cores against that of the CPU in float32, from the same rounded
// numbers.
//
// How far may they differ? Rounding to bfloat16, with its significand of 8 bits, moves a number by
// at most u = 2^-8 of itself. Sums of float32 move by 2^-23 for each term, which is nothing beside.
//
// - y: a mean of the v, weighted by probabilities that were rounded (u of the largest |v|), and
//   rounded itself (u of the largest |y|). The first query of a sequence sees one v only, so that
//   the largest |y| is about the largest |v|: together 2 u of it.
// - dv: a sum of dy times rounded probabilities, rounded: 2 u, unless terms cancel.
// - dq, dk: sums of rounded dS times k and q, rounded: likewise.
//
// Where terms cancel, their errors need not; but those are as often up as down, and cancel, too. So
// 2 u of the largest element is the measure of all four. Seen: 0.9 u in y, 1.2 u in the others.
//
// logsumexp: products of bfloat16 are exact in float32, and tensor cores may cut off what a sum
// cannot hold. That is 2^-23 of a score for each of 8 blocks of 16 terms, and as much again for
// exponentials and their sum. Seen on the CPU, whose sums are rounded: 1.6e-7.
#include <gtest/gtest.h>

#include <cmath>

#include "common/error.h"
#include "common/gpu/cuda_accelerator.h"
#include "tests/gpu/bfloat16_attention.h"
#include "tests/gpu/cuda_test.h"

namespace lab::test {
namespace {

constexpr double kTolerance = 2 * 0x1p-8;
constexpr double kLogsumexpTolerance = 16 * 0x1p-23;

struct Case {
  AttentionShape shape;
  Placement place;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.shape, c.place);
}

std::vector<Case> cases() {
  const std::vector<Placement> placements = {
      {"dense", 0, 0}, {"aligned_gaps", 8, 16}, {"odd_gaps", 1, 2}};
  std::vector<Case> result;
  for (const AttentionShape& shape : {
           AttentionShape{2, 17, 17, 2, 1, 5},    // heads that are no multiple of a pack
           AttentionShape{1, 65, 65, 2, 1, 48},   // a tile and a row
           AttentionShape{1, 17, 130, 4, 2, 16},  // the last of many positions
       })
    for (const Placement& place : placements) result.push_back({shape, place});
  for (const AttentionShape& shape : {
           AttentionShape{1, 1, 1, 1, 1, 8},       // one position
           AttentionShape{0, 5, 5, 2, 2, 8},       // no sequence
           AttentionShape{1, 1, 65, 4, 1, 64},     // decoding
           AttentionShape{1, 64, 64, 3, 1, 64},    // a tile
           AttentionShape{1, 130, 130, 1, 1, 20},  // few blocks, so small ones
           AttentionShape{1, 130, 130, 1, 1, 128},
           AttentionShape{8, 17, 17, 1, 1, 13},  // many
           AttentionShape{8, 17, 17, 1, 1, 16},
           AttentionShape{3, 130, 130, 4, 2, 32},
           AttentionShape{4, 65, 65, 2, 1, 48},
           AttentionShape{2, 66, 66, 4, 4, 64},
           AttentionShape{2, 65, 65, 4, 2, 128},
           AttentionShape{2, 70, 130, 4, 4, 80},
       })
    result.push_back({shape, placements.front()});
  return result;
}

void expect_agreement(const AttentionShape& shape, const Placement& place) {
  const AttentionInputs in(shape, place);
  const AttentionColumns at(shape, place);
  const AttentionResults actual = attention_on_gpu(in);
  const AttentionResults expected = attention_on_cpu(in, actual);
  const auto compare = [&](const Tensor& a, const Tensor& b, double tolerance, const char* what) {
    expect_near(a, to_doubles(b), tolerance, what);
  };
  compare(actual.logsumexp, expected.logsumexp, kLogsumexpTolerance, "logsumexp");
  compare(actual.y.columns(at.q, at.q_end), expected.y.columns(at.q, at.q_end), kTolerance, "y");
  compare(actual.y.columns(0, at.q), expected.y.columns(0, at.q), 0, "left of y");
  compare(actual.y.columns(at.q_end, actual.y.size(-1)),
          expected.y.columns(at.q_end, actual.y.size(-1)), 0, "right of y");
  if (actual.gradients.defined()) {
    const auto part = [&](int64_t first, int64_t end, double tolerance, const char* what) {
      compare(actual.gradients.columns(first, end), expected.gradients.columns(first, end),
              tolerance, what);
    };
    part(at.q, at.q_end, kTolerance, "dq");
    part(at.k, at.v, kTolerance, "dk");
    part(at.v, at.v_end, kTolerance, "dv");
    part(0, at.q, 0, "left of the gradients");
    part(at.v_end, actual.gradients.size(-1), 0, "right of the gradients");
  }
  expect_same_bits(actual.all(), attention_on_gpu(in).all(), "in two runs");
}

class AttentionBfloat16 : public OnBfloat16Gpu<testing::TestWithParam<Case>> {};

TEST_P(AttentionBfloat16, AgreesWithTheCpuAndWithItself) {
  expect_agreement(GetParam().shape, GetParam().place);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionBfloat16, testing::ValuesIn(cases()), [](const auto& each) {
  return name_of(each.param.shape, each.param.place);
});

class AttentionBfloat16OnGpu : public OnBfloat16Gpu<testing::Test> {};

// On a large GPU, only many sequences make so many blocks that they need not be small.
TEST_F(AttentionBfloat16OnGpu, AgreesInLargeBlocks) {
  const int64_t multiprocessors = cuda::cuda_accelerator().context().multiprocessors();
  const int64_t batch = (multiprocessors + 1) / 2;  // of 2 tiles and 2 heads of keys
  for (const int64_t head_dim : {16, 32, 48, 64, 128})
    expect_agreement({batch, 65, 65, 4, 2, head_dim}, {"dense", 0, 0});
}

// Scores of hundreds: without subtracting the largest one, exponentials overflow.
TEST_F(AttentionBfloat16OnGpu, TakesLargeScores) {
  const AttentionInputs in({1, 40, 40, 1, 1, 32}, {"dense", 0, 0}, 12.0F);
  const AttentionResults actual = attention_on_gpu(in);
  const AttentionResults expected = attention_on_cpu(in, actual);
  expect_near(actual.y, to_doubles(expected.y), kTolerance, "y");
  expect_near(actual.logsumexp, to_doubles(expected.logsumexp), kLogsumexpTolerance, "logsumexp");
  expect_near(actual.gradients, to_doubles(expected.gradients), kTolerance, "gradients");
}

// Scores of keys that a query must not see do not count, whatever they are. Their values are
// multiplied by 0, and so may be anything but infinite.
TEST_F(AttentionBfloat16OnGpu, LaterKeysDoNotCount) {
  for (const int64_t later : {1, 16, 40, 64, 100}) {
    AttentionInputs in({2, 130, 130, 2, 2, 16}, {"dense", 0, 0});
    const AttentionColumns at(in.shape, in.place);
    const AttentionResults clean = attention_on_gpu(in);
    for (int64_t b = 0; b < in.shape.batch; ++b) {
      const Tensor rows = in.queries.rows(b * in.shape.queries + later, (b + 1) * in.shape.queries);
      rows.columns(at.k, at.v).fill(NAN);
      rows.columns(at.v, at.v_end).fill(0x1p120F);
    }
    const AttentionResults dirty = attention_on_gpu(in);
    for (int64_t b = 0; b < in.shape.batch; ++b) {
      const int64_t first = b * in.shape.queries;
      expect_same_bits({clean.y.rows(first, first + later)}, {dirty.y.rows(first, first + later)},
                       "queries before " + std::to_string(later));
      EXPECT_TRUE(std::isnan(to_doubles(dirty.y.rows(first + later, first + later + 1))[0]));
    }
  }
}

// Likewise backwards: gradients of queries do not depend on later keys and values, nor those of
// keys and values on earlier queries.
TEST_F(AttentionBfloat16OnGpu, GradientsKeepTheOrderOfTime) {
  constexpr int64_t kLength = 130;
  for (const int64_t border : {16, 40, 64}) {
    AttentionInputs in({1, kLength, kLength, 2, 1, 16}, {"dense", 0, 0});
    const AttentionColumns at(in.shape, in.place);
    const AttentionResults clean = attention_on_gpu(in);
    in.queries.rows(border, kLength).columns(at.k, at.v_end).fill(3.0F);
    const AttentionResults other_keys = attention_on_gpu(in);
    expect_same_bits({clean.gradients.rows(0, border).columns(at.q, at.q_end).clone()},
                     {other_keys.gradients.rows(0, border).columns(at.q, at.q_end).clone()}, "dq");
    in = AttentionInputs(in.shape, in.place);
    in.queries.rows(0, border).columns(at.q, at.q_end).fill(3.0F);
    in.dy.rows(0, border).fill(5.0F);
    const AttentionResults other_queries = attention_on_gpu(in);
    const auto of_keys = [&](const AttentionResults& results) {
      return results.gradients.rows(border, kLength).columns(at.k, at.v_end).clone();
    };
    expect_same_bits({of_keys(clean)}, {of_keys(other_queries)}, "dk and dv");
  }
}

TEST_F(AttentionBfloat16OnGpu, RefusesHeadsThatAreTooWide) {
  EXPECT_THROW(attention_on_gpu(AttentionInputs({1, 2, 2, 1, 1, 130}, {"dense", 0, 0})), Error);
}

}  // namespace
}  // namespace lab::test
