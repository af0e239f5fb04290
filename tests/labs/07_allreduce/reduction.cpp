// Judges calls of the functions that reduce.
#include "tests/labs/07_allreduce/reduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tests/labs/07_allreduce/groups.h"

namespace lab07 {
namespace {

using lab::OpKind;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

std::vector<Parcel> inputs_of(const Case& c, int ranks) {
  std::vector<Parcel> inputs(static_cast<size_t>(ranks));
  const std::vector<std::vector<int>> groups = groups_of(c, ranks);
  for (int r = 0; r < ranks; ++r) {
    Parcel& input = inputs[static_cast<size_t>(r)];
    const std::vector<float> numbers = numbers_of(c, r, place_in(groups, r));
    input.set_text("function", c.function);
    input.set("op", static_cast<double>(c.op));
    input.set("numbers", lab::Tensor::from(numbers, {c.elements}));
    input.set("ranks_per_host", c.ranks_per_host);
    if (c.colors.empty()) continue;
    input.set("color", c.colors[static_cast<size_t>(r)]);
    input.set("key", ranks - r);
  }
  return inputs;
}

/// What a message says about a call, after its elements and ranks.
std::string details_of(const Case& c) {
  if (c.function == "hierarchical_all_reduce")
    return fmt::format(", {} per host", c.ranks_per_host);
  return c.colors.empty() ? "" : ", in groups";
}

/// Nothing but messages, splits and additions.
void expect_messages_only(const std::vector<Operation>& operations, size_t rank) {
  for (const Operation& operation : operations)
    if (!is_message(operation.kind) && operation.kind != OpKind::kSplit &&
        operation.kind != OpKind::kAdd)
      stop(
          fmt::format("rank {} calls {}: this lab's functions are made of send, recv, isend and "
                      "irecv",
                      rank, op_name(operation.kind)));
}

/// What travelled, by (group rank, bytes).
std::vector<Message> sent_by(const std::vector<Operation>& operations,
                             const std::vector<int>& members) {
  std::vector<Message> sends;
  for (const Operation& operation : operations)
    if (operation.kind == OpKind::kSend)
      sends.push_back(
          {static_cast<int>(std::ranges::find(members, operation.peer) - members.begin()),
           operation.bytes});
  std::sort(sends.begin(), sends.end());
  return sends;
}

uint64_t bytes_of(const std::vector<Message>& messages) {
  uint64_t sum = 0;
  for (const Message& message : messages) sum += message.bytes;
  return sum;
}

std::string in_words(const std::vector<Message>& messages) {
  std::vector<std::string> words;
  for (const Message& message : messages)
    words.push_back(fmt::format("{} bytes to {}", message.bytes, message.to));
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

void expect_sends(const Case& c, const std::vector<Operation>& operations,
                  const std::vector<int>& members, int place) {
  const std::vector<Message> sent = sent_by(operations, members);
  const std::vector<Message> promised =
      promise_of(c, place, static_cast<int>(members.size())).sends;
  if (sent == promised) return;
  const std::string details =
      fmt::format("\nit sent: {}\nexpected: {}", in_words(sent), in_words(promised));
  const std::string who = fmt::format("the numbers are right, but rank {}", place);
  if (sent.size() != promised.size())
    stop(fmt::format("{} sends {} messages, not {}{}", who, sent.size(), promised.size(), details));
  if (bytes_of(sent) != bytes_of(promised))
    stop(fmt::format("{} sends {} bytes, not {}{}", who, bytes_of(sent), bytes_of(promised),
                     details));
  stop(fmt::format("{} sends to other ranks, or other chunks, than the contract says{}", who,
                   details));
}

void expect_scratch(const Case& c, const Parcel& result, int place, int ranks) {
  constexpr int64_t kMany = 20'000;      // elements: else the tensors are smaller than this:
  constexpr uint64_t kWorks = 32 << 10;  // Work objects, entries of the flight record
  if (c.elements < kMany) return;
  const auto used = static_cast<uint64_t>(result.number("scratch"));
  const uint64_t promised = promise_of(c, place, ranks).scratch;
  if (used > promised + kWorks)
    stop(
        fmt::format("the numbers are right, but rank {} uses {} bytes of scratch: the contract "
                    "says {}\n(up to {} bytes more are allowed, for what messages need)",
                    place, used, promised, kWorks));
}

void expect_time(const Case& c, const std::vector<Parcel>& results, const std::vector<int>& members,
                 const lab::CostModel& costs) {
  constexpr double kRounding = 2;  // ns
  double begin = results[static_cast<size_t>(members[0])].number("begin_ns");
  double end = 0;
  for (const int rank : members) {
    begin = std::min(begin, results[static_cast<size_t>(rank)].number("begin_ns"));
    end = std::max(end, results[static_cast<size_t>(rank)].number("end_ns"));
  }
  const double allowed = 1e9 * seconds_of(c, static_cast<int>(members.size()), costs);
  if (end - begin <= allowed + kRounding) return;
  stop(fmt::format(
      "the numbers and messages are right, but they take {:.0f} ns in simulated time, and the "
      "contract says {:.0f}: does a rank send and receive at the same time, and does nobody wait "
      "for what it does not need?\n{} elements on {} ranks; alpha {:g} ns, beta {:g} ns per byte, "
      "gamma {:g} ns",
      end - begin, allowed, c.elements, members.size(), 1e9 * costs.inside.alpha,
      1e9 * costs.inside.beta, 1e9 * costs.gamma));
}

void judge_group(const Case& c, const std::vector<Parcel>& results, const std::vector<int>& members,
                 const lab::grading::JobOptions& options) {
  const int n = static_cast<int>(members.size());
  std::vector<Numbers> got;
  std::vector<std::vector<float>> inputs;
  for (int place = 0; place < n; ++place) {
    const auto rank = static_cast<size_t>(members[static_cast<size_t>(place)]);
    if (results[rank].number("fence_broken") != 0)
      stop(
          "memory beside the tensor was overwritten: does a chunk begin or end in the wrong "
          "place?");
    got.push_back(lab::grading::to_doubles(results[rank].tensor("numbers")));
    inputs.push_back(numbers_of(c, members[static_cast<size_t>(place)], place));
    expect_messages_only(operations_of(results[rank]), rank);
  }
  expect_results(c, got, inputs);
  for (int place = 0; place < n; ++place) {
    const Parcel& result = results[static_cast<size_t>(members[static_cast<size_t>(place)])];
    expect_sends(c, operations_of(result), members, place);
    if (options.network == lab::grading::Network::kSimulated) expect_scratch(c, result, place, n);
  }
  if (options.simulation.costs) expect_time(c, results, members, *options.simulation.costs);
}

}  // namespace

void expect_cases(const std::vector<Case>& cases, int ranks,
                  const lab::grading::JobOptions& options) {
  std::vector<lab::grading::Call> calls;
  for (const Case& c : cases)
    calls.push_back(
        {.scenario = c.function == "hierarchical_all_reduce" ? "hierarchical" : "reduction",
         .inputs = inputs_of(c, ranks),
         .name = fmt::format("{} of {} elements on {} ranks{}", c.function, c.elements, ranks,
                             details_of(c))});
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& results) {
    for (const std::vector<int>& members : groups_of(cases[k], ranks))
      judge_group(cases[k], results, members, options);
  });
}

}  // namespace lab07
