// TokenSampler: temperature, top-k and top-p do what they say; the seed decides.
#include "common/run/generation/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/error.h"

namespace lab::sampling_test {
namespace {

constexpr int kDraws = 20000;

// How often each token is drawn, as a fraction.
std::vector<double> frequencies(const SamplingOptions& options, const std::vector<float>& logits) {
  TokenSampler sampler(options);
  std::vector<double> result(logits.size());
  for (int i = 0; i < kDraws; ++i) ++result[static_cast<size_t>(sampler.pick(logits))];
  for (double& count : result) count /= kDraws;
  return result;
}

// Logits of probabilities 0.1, 0.5, 0.15, 0.25, shifted by a constant, which must not matter.
std::vector<float> example_logits() {
  std::vector<float> logits;
  for (const double p : {0.1, 0.5, 0.15, 0.25})
    logits.push_back(static_cast<float>(std::log(p) + 50));
  return logits;
}

constexpr double kTolerance = 0.015;  // four standard deviations of kDraws draws

TEST(Sampling, PlainSamplingFollowsTheSoftmax) {
  const auto seen = frequencies({.temperature = 1.0, .top_k = 0, .top_p = 1.0}, example_logits());
  EXPECT_NEAR(seen[0], 0.1, kTolerance);
  EXPECT_NEAR(seen[1], 0.5, kTolerance);
  EXPECT_NEAR(seen[2], 0.15, kTolerance);
  EXPECT_NEAR(seen[3], 0.25, kTolerance);
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  // p^(1/T), normalised: T = 0.5 squares the probabilities.
  const double squares = 0.01 + 0.25 + 0.0225 + 0.0625;
  const auto cold = frequencies({.temperature = 0.5, .top_p = 1.0}, example_logits());
  EXPECT_NEAR(cold[1], 0.25 / squares, kTolerance);
  EXPECT_NEAR(cold[0], 0.01 / squares, kTolerance);
  const auto hot = frequencies({.temperature = 1000.0, .top_p = 1.0}, example_logits());
  for (const double frequency : hot) EXPECT_NEAR(frequency, 0.25, kTolerance);
}

TEST(Sampling, TemperatureZeroTakesTheMostLikelyAndTheFirstOfEquals) {
  TokenSampler sampler({.temperature = 0.0});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sampler.pick(example_logits()), 1);
    EXPECT_EQ(sampler.pick(std::vector<float>{1.0F, 3.0F, 3.0F}), 1);
  }
}

TEST(Sampling, TopKKeepsTheMostLikelyInTheirProportion) {
  const auto seen = frequencies({.temperature = 1.0, .top_k = 2, .top_p = 1.0}, example_logits());
  EXPECT_EQ(seen[0], 0.0);
  EXPECT_EQ(seen[2], 0.0);
  EXPECT_NEAR(seen[1], 0.5 / 0.75, kTolerance);
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesP) {
  // 0.5 + 0.25 < 0.8 <= 0.5 + 0.25 + 0.15
  const auto three = frequencies({.temperature = 1.0, .top_p = 0.8}, example_logits());
  EXPECT_EQ(three[0], 0.0);
  EXPECT_NEAR(three[2], 0.15 / 0.9, kTolerance);
  const auto one = frequencies({.temperature = 1.0, .top_p = 1e-9}, example_logits());
  EXPECT_EQ(one[1], 1.0);
}

TEST(Sampling, TopPCountsWithinTopK) {
  // Of the two that top-k leaves, the first has 2/3 > 0.6 of the probability.
  const auto seen = frequencies({.temperature = 1.0, .top_k = 2, .top_p = 0.6}, example_logits());
  EXPECT_EQ(seen[1], 1.0);
}

TEST(Sampling, TheSeedDecides) {
  const auto draw = [](uint64_t seed) {
    TokenSampler sampler({.temperature = 1.0, .top_p = 1.0, .seed = seed});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.pick(example_logits()));
    return tokens;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(Sampling, ExtremeScoresDoNotOverflow) {
  TokenSampler sampler({.temperature = 1e-3, .top_p = 1.0});
  EXPECT_EQ(sampler.pick(std::vector<float>{-1e30F, 1e30F, 0.0F}), 1);
}

TEST(Sampling, RefusesNonsense) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TokenSampler sampler({});
  EXPECT_THROW(sampler.pick(std::vector<float>{0.0F, nan}), Error);
  EXPECT_THROW(sampler.pick({}), Error);
  EXPECT_THROW(TokenSampler({.temperature = -1.0}), Error);
  EXPECT_THROW(TokenSampler({.temperature = double{nan}}), Error);
  EXPECT_THROW(TokenSampler({.top_k = -1}), Error);
  EXPECT_THROW(TokenSampler({.top_p = 0.0}), Error);
  EXPECT_THROW(TokenSampler({.top_p = 1.1}), Error);
}

}  // namespace
}  // namespace lab::sampling_test
