// The messages of compute_gradients.
#include <fmt/format.h>

#include <algorithm>

#include "tests/labs/06_hybrid_2x3/verdict_gradients.h"

namespace lab06 {

using lab::OpKind;
using lab::grading::Parcel;

namespace {

using Group = Operation::Group;

/// Without those that total_targets alone takes: their number is for task 4 to judge.
std::vector<Operation> without_counting(const Parcel& result) {
  std::vector<Operation> all = operations(result, "operations");
  for (const Operation& counting : operations(result, "counting")) {
    const auto found = std::ranges::find_if(
        all, [&](const Operation& operation) { return operation.same_kind(counting); });
    if (found != all.end()) all.erase(found);
  }
  return all;
}

void expect_passes(const StepCase& c, size_t rank, const std::vector<Operation>& all) {
  for (const int step : {-1, 1}) {
    const int peer_stage = c.grid.stage(rank) + step;
    const bool has_peer = peer_stage >= 0 && peer_stage < c.grid.pp;
    const auto right = has_peer ? static_cast<std::ptrdiff_t>(c.microbatches()) : 0;
    for (const OpKind kind : {OpKind::kSend, OpKind::kRecv}) {
      const auto got = std::ranges::count_if(all, [&](const Operation& operation) {
        return operation.kind == kind && operation.group == Group::kPipeline &&
               operation.peer == static_cast<int>(rank) + step;
      });
      if (got != right)
        lab::grading::stop(fmt::format(
            "{}: {} {}s with rank {}, there should be {}: those of the schedule, once for each of "
            "the {} waves",
            c.grid.name(rank), got, lab::op_name(kind), static_cast<int>(rank) + step, right,
            c.waves));
    }
  }
}

bool is_of_the_schedule(const StepCase& c, const Operation& operation) {
  return lab::is_message(operation.kind) && operation.group == Group::kPipeline &&
         operation.bytes == c.message_bytes();
}

}  // namespace

void expect_messages(const std::vector<Parcel>& results, const StepCase& c) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const std::vector<Operation> all = without_counting(results[rank]);
    const double bytes = results[rank].number("gradient_bytes");
    int sums = 0;
    for (const Operation& operation : all) {
      if (is_of_the_schedule(c, operation)) continue;
      const bool sum = operation.kind == OpKind::kAllReduce &&
                       operation.group == Group::kReplicas && operation.bytes == bytes;
      sums += sum ? 1 : 0;
      if (sum) continue;
      if (operation.kind == OpKind::kAllReduce && operation.group == Group::kReplicas)
        lab::grading::stop(fmt::format(
            "{}: an {}; the gradients of the stage are {} bytes and travel together, in a single "
            "all_reduce of stage.gradients()",
            c.grid.name(rank), in_words(operation), bytes));
      lab::grading::stop(fmt::format(
          "{}: the numbers are right, but it takes a {}: besides the messages of the schedule and "
          "of total_targets there is a single all_reduce, of stage.gradients() in mesh.replicas",
          c.grid.name(rank), in_words(operation)));
    }
    const bool alone = c.grid.dp == 1;  // then there is nobody to send to
    if (sums > 1 || (sums == 0 && !alone))
      lab::grading::stop(
          fmt::format("{}: {} all_reduces of the gradients, there should be 1, behind the last of "
                      "the {} waves",
                      c.grid.name(rank), sums, c.waves));
    expect_passes(c, rank, all);
  }
}

}  // namespace lab06
