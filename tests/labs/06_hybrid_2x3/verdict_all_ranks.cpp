// Judging what all stages of all pipelines have.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/labs/06_hybrid_2x3/verdict_case.h"

namespace lab06 {

using lab::grading::Expected;
using lab::grading::Parcel;

namespace {

/// What the ranks have whose numbers are right: "0, 3".
std::string right_ranks(const std::vector<Numbers>& got, const Grid& g, const Parts& p,
                        const Expected& whole) {
  std::string text;
  for (size_t rank = 0; rank < got.size(); ++rank) {
    const auto stage = static_cast<size_t>(g.stage(rank));
    const Expected own{.what = "",
                       .values = p.layout.part(whole.values, stage),
                       .tolerance = p.layout.part(whole.tolerance, stage),
                       .name = {},
                       .mistakes = {},
                       .if_not_finite = ""};
    if (lab::grading::difference(got[rank], own).empty())
      text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  }
  return text;
}

/// That `got` is `wrong` but for rounding, which grows with the numbers: a mistake may have made
/// them a hundred times too large.
bool explains(const Numbers& wrong, const Numbers& got, const Expected& right) {
  Expected expected = right;
  expected.values = wrong;
  const double larger = lab::grading::largest_magnitude(wrong) /
                        std::max(lab::grading::largest_magnitude(right.values), 1e-30);
  for (size_t i = 0; i < wrong.size(); ++i)
    expected.tolerance[i] =
        expected.tolerance[i] * std::max(larger, 1.0) + 1e-4 * std::abs(wrong[i]);
  return lab::grading::difference(got, expected).empty();
}

}  // namespace

Numbers for_all_ranks(const Numbers& whole, const Grid& g) {
  Numbers all;
  for (int d = 0; d < g.dp; ++d) all.insert(all.end(), whole.begin(), whole.end());
  return all;
}

void expect_on_all_ranks(const std::vector<Parcel>& results, const std::string& entry,
                         const Grid& g, const Parts& p, const Expected& whole,
                         const std::function<std::vector<MeshMistake>()>& mistakes,
                         const std::function<std::string()>& details) {
  const std::vector<Numbers> got = pipeline_tests::tensors_of(results, entry);
  Expected all{.what = whole.what,
               .values = for_all_ranks(whole.values, g),
               .tolerance = for_all_ranks(whole.tolerance, g),
               .name =
                   [&](size_t i) {
                     const size_t size = whole.values.size();
                     return fmt::format("pipeline {}, {}", i / size, p.layout.name(0, i % size));
                   },
               .mistakes = {},
               .if_not_finite = ""};
  const Numbers joined = pipeline_tests::joined(got);
  if (lab::grading::difference(joined, all).empty()) return;
  std::string message = lab::grading::difference(joined, all);
  for (const MeshMistake& mistake : mistakes()) {
    if (!explains(pipeline_tests::joined(mistake.by_pipeline), joined, all)) continue;
    message = mistake.message + message.substr(message.find('\n'));
    break;
  }
  if (details) message += details();
  if (const std::string right = right_ranks(got, g, p, whole); !right.empty())
    message += "\nright on rank " + right;
  lab::grading::stop(message);
}

void expect_equal_replicas(const std::vector<Parcel>& results, const std::string& entry,
                           const Grid& g, const std::string& what) {
  const std::vector<Numbers> got = pipeline_tests::tensors_of(results, entry);
  for (size_t rank = 0; rank < got.size(); ++rank) {
    const size_t first = g.rank(0, g.stage(rank));
    if (got[rank] == got[first]) continue;
    size_t i = 0;
    while (got[rank][i] == got[first][i]) ++i;
    lab::grading::stop(fmt::format(
        "{} of rank {} and of rank {}, replicas of stage {}, are not the same to the last bit: the "
        "replicas drift apart\nelement {}: {:.9g} and {:.9g}",
        what, first, rank, g.stage(rank), i, got[first][i], got[rank][i]));
  }
}

}  // namespace lab06
