// Running and judging all stages of a pipeline. For verdicts.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "common/grading/verdict.h"

namespace pipeline_tests {

/// Ranks as processes, over TCP.
inline lab::grading::GroupOptions over_gloo(
    lab::grading::Functions functions = lab::grading::Functions::kOwn) {
  return {.functions = functions, .network = lab::grading::Network::kGloo, .simulation = {}};
}

/// Simulated ranks, of which any may come first, and whose messages may be late. Nothing is
/// buffered.
inline lab::grading::GroupOptions late(
    uint64_t seed, lab::grading::Functions functions = lab::grading::Functions::kOwn) {
  lab::grading::GroupOptions options{
      .functions = functions, .network = lab::grading::Network::kSimulated, .simulation = {}};
  options.simulation.seed = seed;
  options.simulation.max_delay = 5;
  options.simulation.shuffle_ranks = true;
  return options;
}

/// Simulated ranks whose sends never wait: who sends to the wrong rank, or too much, gets through
/// to be counted.
inline lab::grading::GroupOptions buffered(
    lab::grading::Functions functions = lab::grading::Functions::kOwn) {
  lab::grading::GroupOptions options{
      .functions = functions, .network = lab::grading::Network::kSimulated, .simulation = {}};
  options.simulation.buffered_bytes = 1 << 20;
  return options;
}

/// In which order stages depend on each other: what goes wrong on one, goes wrong on those after
/// it.
enum class Blame { kFromTheFirst, kFromTheLast };

/// Ends the test as failed unless every rank's numbers are right; told is the rank to blame.
/// `expected(r)` says what rank r should have; `details(r)`, if given, adds lines to the message.
inline void expect_on_every_rank(const std::vector<std::vector<double>>& got, Blame blame,
                                 const std::function<lab::grading::Expected(size_t)>& expected,
                                 const std::function<std::string(size_t)>& details = {}) {
  std::string message;
  std::string right_ranks;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t rank = blame == Blame::kFromTheFirst ? i : got.size() - 1 - i;
    const std::string difference = lab::grading::difference(got[rank], expected(rank));
    if (difference.empty())
      right_ranks += fmt::format("{}{}", right_ranks.empty() ? "" : ", ", rank);
    else if (message.empty())
      message = fmt::format("rank {}: {}{}{}", rank, difference, details ? "\n" : "",
                            details ? details(rank) : "");
  }
  if (message.empty()) return;
  if (!right_ranks.empty()) message += fmt::format("\nright on rank {}", right_ranks);
  lab::grading::stop(message);
}

/// A tensor of every rank.
inline std::vector<std::vector<double>> tensors_of(const std::vector<lab::grading::Parcel>& results,
                                                   const std::string& entry) {
  std::vector<std::vector<double>> all;
  for (const lab::grading::Parcel& result : results)
    all.push_back(lab::grading::to_doubles(result.tensor(entry)));
  return all;
}

/// All ranks' numbers, one behind the other.
inline std::vector<double> joined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const std::vector<double>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace pipeline_tests
