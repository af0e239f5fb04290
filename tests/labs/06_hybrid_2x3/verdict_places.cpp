// Verdict on task 1: which stage of which pipeline a rank is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/labs/06_hybrid_2x3/verdict_grid.h"

namespace lab06 {
namespace {

using lab::grading::Expected;
using lab::grading::Parcel;

struct Place {
  int pipeline = 0;
  int stage = 0;
};

/// Pipeline and stage of every rank, one behind the other.
Numbers places(const Grid& g, const std::function<Place(int rank)>& place_of) {
  Numbers all;
  for (int rank = 0; rank < g.dp * g.pp; ++rank) {
    const Place place = place_of(rank);
    all.push_back(place.pipeline);
    all.push_back(place.stage);
  }
  return all;
}

std::string table(const Numbers& got) {
  std::string text = "\nplace_of says (pipeline, stage):";
  for (size_t i = 0; i + 1 < got.size(); i += 2)
    text += fmt::format(" {}:({}, {})", i / 2, got[i], got[i + 1]);
  return text;
}

void expect_places(const Grid& g) {
  Parcel input;
  input.set("pp", g.pp);
  input.set("ranks", static_cast<double>(g.ranks()));
  const Numbers got = lab::grading::student("places", input).numbers("places");

  const int pp = g.pp;
  const int dp = g.dp;
  Expected expected{.what = "the places",
                    .values = places(g,
                                     [=](int r) {
                                       return Place{r / pp, r % pp};
                                     }),
                    .tolerance = {0.01},
                    .name =
                        [](size_t i) {
                          return fmt::format("rank {}, {}", i / 2,
                                             i % 2 == 0 ? "pipeline" : "stage");
                        },
                    .mistakes = {},
                    .if_not_finite = ""};
  const auto add = [&](const std::string& message, const std::function<Place(int)>& place_of) {
    expected.mistakes.push_back({places(g, place_of), message});
  };
  add("pipeline and stage are exchanged: the quotient by pp says which pipeline, the remainder "
      "which stage",
      [=](int r) {
        return Place{r % pp, r / pp};
      });
  add("the ranks are dealt out to the pipelines like cards: those of a pipeline follow each other, "
      "rank 1 is stage 1 of pipeline 0",
      [=](int r) {
        return Place{r % dp, r / dp};
      });
  add("both count from 0, not from 1", [=](int r) { return Place{r / pp + 1, r % pp + 1}; });
  add("pipelines count from 0, not from 1", [=](int r) { return Place{r / pp + 1, r % pp}; });
  add("stages count from 0, not from 1", [=](int r) { return Place{r / pp, r % pp + 1}; });
  add("the stages of the second pipeline stand in reverse order: in every pipeline they follow the "
      "ranks, the lowest is stage 0",
      [=](int r) {
        const int stage = r % pp;
        return Place{r / pp, r / pp % 2 == 1 ? pp - 1 - stage : stage};
      });
  add("the stages stand in reverse order: the lowest rank of a pipeline is stage 0", [=](int r) {
    return Place{r / pp, pp - 1 - r % pp};
  });
  add("the stage is the rank of the world: in every pipeline stages count from 0, which rank is it "
      "within its own?",
      [=](int r) {
        return Place{r / pp, r};
      });
  add("every rank lands in pipeline 0", [=](int r) { return Place{0, r % pp}; });
  add("divided by the number of pipelines: it is pp, the stages of a pipeline, that counts ranks "
      "off",
      [=](int r) {
        return Place{r / dp, r % dp};
      });
  add("right for pipelines of three stages only: pp says how many there are", [=](int r) {
    return Place{r / 3, r % 3};
  });
  add("right for pipelines of two stages only: pp says how many there are", [=](int r) {
    return Place{r / 2, r % 2};
  });
  if (const std::string wrong = lab::grading::difference(got, expected); !wrong.empty())
    lab::grading::stop(wrong + table(got));
}

TEST(Task1, TwoPipelinesOfThreeStages) { expect_places({2, 3}); }
TEST(Task1, ThreePipelinesOfTwoStages) { expect_places({3, 2}); }
TEST(Task1, OnePipeline) { expect_places({1, 4}); }
TEST(Task1, PipelinesOfOneStage) { expect_places({4, 1}); }
TEST(Task1, ASingleRank) { expect_places({1, 1}); }
TEST(Task1, ManyRanks) { expect_places({7, 5}); }

}  // namespace
}  // namespace lab06
