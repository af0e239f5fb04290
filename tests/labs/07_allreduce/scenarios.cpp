// Which calls the tests make.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <random>
#include <regex>

#include "tests/grading/verdict_session.h"
#include "tests/labs/07_allreduce/groups.h"
#include "tests/labs/07_allreduce/reduction.h"

namespace lab07 {
namespace {

using lab::ReduceOp;
using lab::grading::JobOptions;
using lab::grading::Network;
using lab::grading::Outcome;
using lab::grading::RankResult;
using lab::grading::stop;

/// A number of elements whose chunks come out differently if E / ranks is computed in floating
/// point first; any number, if there is none up to 1,000.
int64_t unkind_to_doubles(int ranks) {
  for (int64_t elements = ranks; elements <= 1000; ++elements)
    for (int64_t k = 1; k <= ranks; ++k)
      if (static_cast<int64_t>(static_cast<double>(k) * (static_cast<double>(elements) / ranks)) !=
          k * elements / ranks)
        return elements;
  return ranks;
}

/// All calls of a job with `ranks` ranks.
std::vector<Case> draw_cases(const std::vector<std::string>& functions, int ranks,
                             std::mt19937_64& random) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<Case> cases;
  for (const std::string& function : functions) {
    const auto add = [&](int64_t elements, ReduceOp op, bool telling = false) {
      cases.push_back({.function = function,
                       .elements = elements,
                       .op = op,
                       .telling = telling,
                       .seed = random() % 1'000'000});
    };
    add(4 * ranks, ReduceOp::kSum, true);
    add(draw(2 * ranks, 300), ReduceOp::kSum, true);
    add(draw(0, ranks - 1), ReduceOp::kSum);
    add(draw(1, 20) * ranks + draw(1, std::max(1, ranks - 1)), ReduceOp::kMin);
    add(1, ReduceOp::kMax);
    add(1, ReduceOp::kSum);
    add(draw(10, 400), ReduceOp::kMax);
    add(0, ReduceOp::kSum);
    add(unkind_to_doubles(ranks), ReduceOp::kSum);
    if (ranks >= 4 && function != "hierarchical_all_reduce") {
      add(draw(1, 50), ReduceOp::kSum);
      const bool all_call = ranks > 5;  // else only one group does
      for (int r = 0; r < ranks; ++r)
        cases.back().colors.push_back(r == 1 || r % 2 == 0 ? 1 : all_call ? 2 : 0);
    }
    add(draw(10, 400), ReduceOp::kSum);
  }
  return cases;
}

bool holds_only(const lab::Tensor& tensor, float number) {
  return std::all_of(tensor.data(), tensor.data() + tensor.numel(),
                     [&](float element) { return element == number; });
}

int largest_divisor(int ranks) {
  for (int m = ranks - 1; m > 1; --m)
    if (ranks % m == 0) return m;
  return 1;
}

/// A job of one call, in a simulation, whose sum is `sum` in every element.
struct EndingJob {
  lab::grading::RankJob job;
  float sum = 0;
};

EndingJob ending_job(Case c, int ranks, const std::set<std::string>& given) {
  c.telling = true;
  EndingJob made{.job = {.program = lab::grading::settings().rank_program(),
                         .implementation = lab::grading::settings().implementation_file(),
                         .scenario = scenario_of(c),
                         .inputs = inputs_of(c, ranks),
                         .given = given,
                         .deadline_s = 10,
                         .threads = 1,
                         .network = Network::kSimulated}};
  for (int r = 0; r < ranks; ++r) made.sum += numbers_of(c, r, r)[0];
  return made;
}

/// Stops the test if the sum is wrong even if no rank ends.
void run_undisturbed(const EndingJob& ending) {
  const std::vector<RankResult> results = run_ranks_patiently(ending.job);
  const RankResult* failure = first_failure(results);
  if (failure != nullptr && failure->outcome == Outcome::kNotImplemented) stop(failure->message);
  for (const RankResult& rank : results)
    if (rank.outcome != Outcome::kReturned ||
        !holds_only(rank.result.tensor("numbers"), ending.sum))
      stop("the sum is wrong even if no rank ends: the other tests say how");
}

void expect_sums(const std::string& what, const std::vector<RankResult>& results, float sum) {
  for (const RankResult& rank : results)
    if (rank.outcome == Outcome::kReturned && !holds_only(rank.result.tensor("numbers"), sum))
      stop(
          fmt::format("{}, yet rank {} returns, as if all were well, without the sum over all "
                      "ranks: an error of send, recv or wait must leave your function",
                      what, rank.rank));
}

}  // namespace

void expect_any_cases(const std::vector<std::string>& functions, uint64_t seed,
                      const std::set<std::string>& given) {
  std::mt19937_64 random(seed);
  for (const int ranks : {3, 2, 1, 4, 5, 6, 7, 8}) {
    std::vector<Case> cases = draw_cases(functions, ranks, random);
    for (size_t k = 0; k < cases.size(); ++k)
      cases[k].ranks_per_host = k % 3 == 0 ? largest_divisor(ranks)
                                : k % 3 == 1
                                    ? std::max(1, ranks / std::max(1, largest_divisor(ranks)))
                                    : ranks;
    JobOptions options = lab::grading::late_messages(random() % 1000, given);
    if (ranks == 2 || ranks == 5) options.simulation.max_delay = 0;
    if (ranks == 4) options.simulation.slow_link = {.from = 3, .to = 0};
    if (ranks == 5) options.simulation.slow_link = {.from = 1, .to = 2};
    if (ranks == 6) options.simulation.slow_link = {.from = 0, .to = 1};
    expect_cases(cases, ranks, options);
  }
}

JobOptions timed(int ranks_per_host, std::set<std::string> given) {
  JobOptions options{.network = Network::kSimulated, .given = std::move(given)};
  options.simulation.costs = {.inside = {.alpha = 1000e-9, .beta = 1e-9},
                              .between = {.alpha = 8000e-9, .beta = 4e-9},
                              .ranks_per_host = ranks_per_host,
                              .gamma = 2e-9};
  return options;
}

void expect_explained_ends(Case c, int ranks, const std::vector<int>& operations,
                           const std::set<std::string>& given) {
  c.elements = 60;
  EndingJob ending = ending_job(c, ranks, given);
  lab::grading::RankJob& job = ending.job;
  const float sum = ending.sum;
  const auto expect = [&](const std::string& what, const std::optional<std::regex>& explanation) {
    const std::vector<RankResult> results = run_ranks_patiently(job);
    const RankResult* failure = first_failure(results);
    // What is reported if nobody is diagnosed, unless it is the end that the test itself has
    // brought about.
    const int dead = job.simulation.death ? job.simulation.death->rank : -1;
    for (const RankResult& rank : results)
      if (rank.rank != dead && rank.outcome != Outcome::kReturned) {
        failure = &rank;
        break;
      }
    expect_sums(what, results, sum);
    if (failure == nullptr)
      stop(what + ", yet every rank returned: are there fewer messages than the contract says?");
    if (!explanation) return;
    for (const RankResult& rank : results) {
      if (rank.outcome == Outcome::kDiagnosed && std::regex_search(rank.message, *explanation))
        return;
    }
    stop(fmt::format("{}: a rank that waits for it must be told so, but was told\n{}", what,
                     failure->message));
  };
  run_undisturbed(ending);
  const int last = ranks - 1;
  for (const int operation : operations) {
    job.simulation.death = {.rank = last, .operation = operation};
    expect(fmt::format("the test ends rank {} in the call, at its operation {}", last, operation),
           std::regex(fmt::format("rank {} ", last)));
  }
  job.simulation.death = {};
  // Over Gloo, where errors are ordinary exceptions.
  job.network = Network::kGloo;
  job.inputs.back().set_text("function", "leaves");
  expect(fmt::format("rank {} ends before the call", last), std::nullopt);
  job.network = Network::kSimulated;
  c.elements = 30;
  job.inputs.back() = inputs_of(c, ranks).back();
  expect(fmt::format("rank {} passes 30 elements, all others 60", last),
         std::regex("bytes(.|\n)*bytes"));
}

void expect_errors_to_leave(const Case& c, int ranks, const std::set<std::string>& given) {
  EndingJob ending = ending_job(c, ranks, given);
  run_undisturbed(ending);  // so each rank has so many operations and no more
  for (int dead = 0; dead < ranks; ++dead) {
    bool died = true;
    for (int operation = 1; died; ++operation) {
      ending.job.simulation.death = {.rank = dead, .operation = operation, .breaks_off = true};
      const std::vector<RankResult> results = run_ranks_patiently(ending.job);
      const std::string what =
          fmt::format("the test ends rank {} in the call, at its operation {}", dead, operation);
      expect_sums(what, results, ending.sum);
      for (const RankResult& rank : results)
        if (rank.rank != dead && rank.outcome == Outcome::kError)
          stop(fmt::format(
              "{}, and rank {} throws another exception than that of its message. Let that one "
              "propagate unchanged: programs tell by its type, lab::BrokenOff, that the cause is "
              "elsewhere\n{}",
              what, rank.rank, rank.message));
      const RankResult& end = results[static_cast<size_t>(dead)];
      died = end.message.find("killed at operation") != std::string::npos;
    }
  }
}

}  // namespace lab07
