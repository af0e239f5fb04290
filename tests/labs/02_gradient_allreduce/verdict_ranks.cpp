// Judging what several ranks returned.
#include "tests/labs/02_gradient_allreduce/verdict_ranks.h"

#include <fmt/format.h>

#include <array>

namespace lab02 {

using lab::OpKind;
using lab::Traffic;
using lab::grading::Expected;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

GroupOptions over_gloo(lab::grading::Functions functions) {
  return {.functions = functions, .network = lab::grading::Network::kGloo, .simulation = {}};
}

GroupOptions simulated(uint64_t seed, lab::grading::Functions functions) {
  GroupOptions options{
      .functions = functions, .network = lab::grading::Network::kSimulated, .simulation = {}};
  options.simulation.seed = seed;
  options.simulation.max_delay = 5;
  options.simulation.shuffle_ranks = true;
  return options;
}

std::vector<Numbers> tensors_of(const std::vector<Parcel>& results, const std::string& entry) {
  std::vector<Numbers> all;
  for (const Parcel& result : results)
    all.push_back(lab::grading::to_doubles(result.tensor(entry)));
  return all;
}

std::vector<Numbers> numbers_of(const std::vector<Parcel>& results, const std::string& entry) {
  std::vector<Numbers> all;
  for (const Parcel& result : results) all.push_back(result.numbers(entry));
  return all;
}

void expect_on_every_rank(const std::vector<Numbers>& got,
                          const std::function<Expected(size_t)>& expected,
                          const std::function<std::string(size_t)>& details) {
  std::string message;
  std::string right_ranks;
  for (size_t rank = 0; rank < got.size(); ++rank) {
    const std::string difference = lab::grading::difference(got[rank], expected(rank));
    if (difference.empty())
      right_ranks += fmt::format("{}{}", right_ranks.empty() ? "" : ", ", rank);
    else if (message.empty())
      message = fmt::format("rank {}: {}{}{}", rank, difference, details ? "\n" : "",
                            details ? details(rank) : "");
  }
  if (message.empty()) return;
  if (!right_ranks.empty()) message += "\nright on rank " + right_ranks;
  lab::grading::stop(message);
}

void expect_same_bits(const std::vector<Numbers>& got, const std::string& what) {
  for (size_t rank = 1; rank < got.size(); ++rank)
    for (size_t i = 0; i < got[0].size(); ++i)
      if (got[rank].size() != got[0].size() || got[rank][i] != got[0][i])
        lab::grading::stop(fmt::format(
            "{} of rank {} and of rank 0 are not the same to the last bit: the replicas drift "
            "apart\nelement {}: rank 0 has {:.9g}, rank {} has {:.9g}",
            what, rank, i, got[0][i], rank, got[rank].size() > i ? got[rank][i] : 0.0));
}

void expect_traffic(const std::vector<Parcel>& results, const Budget& budget) {
  constexpr std::array kOthers = {OpKind::kSend,   OpKind::kRecv,      OpKind::kBroadcast,
                                  OpKind::kReduce, OpKind::kAllGather, OpKind::kReduceScatter};
  for (size_t rank = 0; rank < results.size(); ++rank) {
    for (OpKind kind : kOthers)
      if (const Traffic other = lab::grading::traffic_of(results[rank], kind); other.operations > 0)
        lab::grading::stop(fmt::format(
            "the numbers are right, but rank {} also calls {} ({} times, {} bytes): all_reduce is "
            "all that is needed",
            rank, lab::op_name(kind), other.operations, other.bytes));
    const Traffic traffic = lab::grading::traffic_of(results[rank], OpKind::kAllReduce);
    const std::string counted =
        fmt::format("\nrank {}: {} all_reduces of together {} bytes; expected at most {} of {}",
                    rank, traffic.operations, traffic.bytes, budget.all_reduces, budget.bytes);
    if (traffic.operations > budget.all_reduces) lab::grading::stop(budget.if_too_many + counted);
    if (traffic.bytes > budget.bytes) lab::grading::stop(budget.if_too_large + counted);
  }
}

}  // namespace lab02
