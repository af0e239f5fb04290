// Task 1: which stage of which pipeline a rank is.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/labs/06_hybrid_2x3/grid.h"

namespace lab06::task1 {
namespace {

struct Place {
  int pipeline = 0;
  int stage = 0;
};

/// Pipeline and stage of every rank, one after the other.
Numbers places(const Grid& g, const std::function<Place(int rank)>& place_of) {
  Numbers all;
  for (int rank = 0; rank < g.dp * g.pp; ++rank) {
    const Place place = place_of(rank);
    all.push_back(place.pipeline);
    all.push_back(place.stage);
  }
  return all;
}

std::vector<Mistake> mistakes(const Grid& g) {
  const int pp = g.pp;
  const int dp = g.dp;
  std::vector<Mistake> all;
  const auto add = [&](const std::string& message, const std::function<Place(int)>& place_of) {
    all.push_back({places(g, place_of), message});
  };
  add("pipeline and stage are exchanged: the quotient by pp says which pipeline, the remainder "
      "which stage",
      [=](int r) {
        return Place{r % pp, r / pp};
      });
  add("the ranks are dealt out to the pipelines in turn: those of a pipeline must be adjacent, "
      "rank 1 is stage 1 of pipeline 0",
      [=](int r) {
        return Place{r % dp, r / dp};
      });
  add("both count from 0, not from 1", [=](int r) { return Place{r / pp + 1, r % pp + 1}; });
  add("pipelines count from 0, not from 1", [=](int r) { return Place{r / pp + 1, r % pp}; });
  add("stages count from 0, not from 1", [=](int r) { return Place{r / pp, r % pp + 1}; });
  add("the stages of the second pipeline are in reverse order: in every pipeline they follow the "
      "ranks, the lowest is stage 0",
      [=](int r) {
        return Place{r / pp, r / pp % 2 == 1 ? pp - 1 - r % pp : r % pp};
      });
  add("the stages are in reverse order: the lowest rank of a pipeline is stage 0", [=](int r) {
    return Place{r / pp, pp - 1 - r % pp};
  });
  add("the stage is the rank in the world: stages count from 0 in every pipeline. Which position "
      "does the rank have within its own?",
      [=](int r) {
        return Place{r / pp, r};
      });
  add("every rank lands in pipeline 0", [=](int r) { return Place{0, r % pp}; });
  const auto add_constant = [&](int stages, const char* word) {
    add(fmt::format("right for pipelines of {} stages only: pp says how many there are", word),
        [=](int r) {
          return Place{r / stages, r % stages};
        });
  };
  add_constant(3, "three");
  add("divided by the number of pipelines: divide by pp, the number of stages of a pipeline",
      [=](int r) {
        return Place{r / dp, r % dp};
      });
  add_constant(2, "two");
  add("rank & (pp - 1) is the remainder for powers of two only: pp may be any number", [=](int r) {
    return Place{r / pp, r & (pp - 1)};
  });
  add("right for two pipelines only: there may be any number of them", [=](int r) {
    return Place{std::min(r / pp, 1), r < pp ? r : r - pp};
  });
  add("right for pipelines 0 to 127 only: a pipeline is an int, not a number of 8 bits",
      [=](int r) {
        return Place{static_cast<int8_t>(r / pp), r % pp};
      });
  add("divided as floats, which are rounded: divide integers", [=](int r) {
    const auto pipeline = static_cast<int>(static_cast<float>(r) * (1.0F / static_cast<float>(pp)));
    return Place{pipeline, r - pipeline * pp};
  });
  return all;
}

void judge(const Grid& g, const Numbers& got) {
  const Expected expected{.what = "the places",
                          .values = places(g,
                                           [&](int r) {
                                             return Place{r / g.pp, r % g.pp};
                                           }),
                          .tolerance = {0.01},
                          .name =
                              [](size_t i) {
                                return fmt::format("rank {}, {}", i / 2,
                                                   i % 2 == 0 ? "pipeline" : "stage");
                              },
                          .mistakes = [&] { return mistakes(g); }};
  const std::string wrong = lab::grading::difference(got, expected);
  if (wrong.empty()) return;
  if (got.size() > 40) stop(wrong);  // more than a reader would look through
  std::string table = "\nplace_of says (pipeline, stage):";
  for (size_t i = 0; i + 1 < got.size(); i += 2)
    table += fmt::format(" {}:({}, {})", i / 2, got[i], got[i + 1]);
  stop(wrong + table);
}

/// Other meshes in one process, one after the other, and the first one again.
TEST(Task1, PlacesInAnyMesh) {
  std::vector<Grid> grids = {{2, 3},  {3, 2},   {1, 4},      {4, 1}, {1, 1}, {7, 5},
                             {2, 2},  {6, 1},   {1, 6},      {2, 4}, {4, 3}, {61, 47},
                             {4, 49}, {300, 2}, {35'000, 2}, {2, 3}};
  const int drawn = static_cast<int>(lab::grading::scenario_seed() % 7);
  grids.push_back({2 + drawn, 9 - drawn});
  std::vector<Call> calls;
  for (const Grid& g : grids) {
    Parcel input;
    g.set(input);
    calls.push_back({.scenario = "places", .inputs = {input}, .name = g.in_words()});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                judge(grids[k], ranks[0].numbers("places"));
              });
}

}  // namespace
}  // namespace lab06::task1
