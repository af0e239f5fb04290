// Judges calls of the functions that reduce.
#include "tests/labs/07_allreduce/reduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/format.h"
#include "labs/07_allreduce/allreduce.h"
#include "tests/labs/07_allreduce/groups.h"

namespace lab07 {
namespace {

using lab::counted;
using lab::OpKind;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

/// What a message says about a call, after its elements and ranks.
std::string details_of(const Case& c) {
  if (c.function == "hierarchical_all_reduce")
    return fmt::format(", {} per host{}", c.ranks_per_host,
                       c.other_hosts > 0
                           ? fmt::format("; then hosts of {} are made, and not used", c.other_hosts)
                           : "");
  return c.colors.empty() ? "" : ", in groups";
}

/// Nothing but messages and additions, and what makes groups: the two splits of make_hosts, and
/// that of the scenario.
void expect_messages_only(const Case& c, const std::vector<Operation>& operations, size_t rank) {
  for (const Operation& operation : operations)
    if (!is_message(operation.kind) && operation.kind != OpKind::kSplit &&
        operation.kind != OpKind::kAdd)
      stop(
          fmt::format("rank {} calls {}: this lab's functions are made of send, recv, isend and "
                      "irecv",
                      rank, op_name(operation.kind)));
  const bool makes_hosts = c.function == "hierarchical_all_reduce";
  const auto splits =
      std::ranges::count(operations, OpKind::kSplit, &Operation::kind) - (c.colors.empty() ? 0 : 1);
  if (splits != (makes_hosts ? c.other_hosts > 0 ? 4 : 2 : 0))
    stop(fmt::format("rank {} calls split {} times: {}", rank, splits,
                     makes_hosts ? "make_hosts calls it twice" : c.function + " makes no groups"));
}

/// Of hierarchical_all_reduce: the groups that make_hosts has made of `members`.
void expect_groups(const Case& c, const Parcel& result, const std::vector<int>& members,
                   int place) {
  const int m = c.ranks_per_host;
  const auto check = [&](const char* name, int first, int step, int count) {
    std::vector<double> expected;
    for (int i = 0, at = first; i < count; ++i, at += step)
      expected.push_back(members[static_cast<size_t>(at)]);
    const std::vector<double> got = result.numbers(name);
    if (got != expected)
      stop(
          fmt::format("rank {}: `{}` consists of ranks {}, not {}\n{} on each host; make_hosts got "
                      "a group of ranks {}",
                      members[static_cast<size_t>(place)], name, fmt::join(got, ", "),
                      fmt::join(expected, ", "), m, fmt::join(members, ", ")));
  };
  check("inside", place / m * m, 1, m);
  check("across", place % m, m, static_cast<int>(members.size()) / m);
}

/// What travelled, by (group rank, bytes), in the order of posting.
std::vector<Message> sent_by(const std::vector<Operation>& operations,
                             const std::vector<int>& members) {
  std::vector<Message> sends;
  for (const Operation& operation : operations)
    if (operation.kind == OpKind::kSend)
      sends.push_back(
          {static_cast<int>(std::ranges::find(members, operation.peer) - members.begin()),
           operation.bytes});
  return sends;
}

std::vector<Message> sorted(std::vector<Message> messages) {
  std::ranges::sort(messages, {},
                    [](const Message& message) { return std::pair(message.to, message.bytes); });
  return messages;
}

uint64_t bytes_of(const std::vector<Message>& messages) {
  uint64_t sum = 0;
  for (const Message& message : messages) sum += message.bytes;
  return sum;
}

std::string in_words(const std::vector<Message>& messages) {
  std::vector<std::string> words;
  for (size_t i = 0, same = 1; i < messages.size(); i += same) {
    for (same = 1; i + same < messages.size() && messages[i + same] == messages[i];) ++same;
    words.push_back(fmt::format("{}{} bytes to {}", same == 1 ? "" : fmt::format("{} x ", same),
                                messages[i].bytes, messages[i].to));
  }
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

std::vector<int> receivers(const std::vector<Message>& messages) {
  std::vector<int> ranks;
  for (const Message& message : messages) ranks.push_back(message.to);
  return ranks;
}

std::string details(const std::vector<Message>& sent, const std::vector<Message>& promised) {
  return fmt::format("\nit sent {}; expected: {}", in_words(sent), in_words(promised));
}

/// Whether the chunks are so long that the contract says nothing about the number of messages.
bool may_be_cut(const Case& c, int n) {
  return c.function.starts_with("ring") && c.elements > kSegment * n;
}

/// All to the same rank as promised, nearly as many bytes (cut in another way, chunks have other
/// lengths), and not in fewer messages.
bool are_cut(const std::vector<Message>& sent, const std::vector<Message>& promised) {
  const auto to_the_same = [&](const Message& message) { return message.to == promised[0].to; };
  const auto bytes = static_cast<double>(bytes_of(promised));
  return std::ranges::all_of(sent, to_the_same) && sent.size() >= promised.size() &&
         std::abs(static_cast<double>(bytes_of(sent)) - bytes) < 1e-3 * bytes;
}

/// Where the chunks are not equally long: as many messages as promised to each rank, but of other
/// lengths. Judged before the numbers, which such chunks may spoil.
void expect_chunks(const Case& c, const std::vector<Operation>& operations,
                   const std::vector<int>& members, int place) {
  const int n = static_cast<int>(members.size());
  const bool has_chunks = c.function.starts_with("ring") || c.function.starts_with("hier");
  if (!has_chunks || c.elements % n == 0 || may_be_cut(c, n)) return;
  const std::vector<Message> sent = sorted(sent_by(operations, members));
  const std::vector<Message> promised = sorted(promise_of(c, place, n).sends);
  if (sent == promised || receivers(sent) != receivers(promised)) return;
  stop(
      fmt::format("rank {} sends chunks of other lengths than the contract's: chunk c begins at "
                  "element c E / n, rounded down{}",
                  place, details(sent, promised)));
}

/// Why there are more or fewer messages than the contract promises; empty if that is not known.
std::string reason_of(const Case& c, const std::vector<Message>& sent,
                      const std::vector<Message>& promised, int n) {
  const auto empty_ones = std::ranges::count(promised, uint64_t{0}, &Message::bytes);
  if (sent.size() < promised.size() &&
      std::ranges::count(sent, uint64_t{0}, &Message::bytes) == 0 &&
      sent.size() + static_cast<size_t>(empty_ones) == promised.size())
    return ": a message without elements has 0 bytes, and must travel all the same";
  if (c.function == "doubling_all_reduce" && !std::has_single_bit(static_cast<unsigned>(n)))
    return ": rank r >= p sends to rank r - p, where p is the largest power of two up to n";
  return "";
}

void expect_sends(const Case& c, const std::vector<Operation>& operations,
                  const std::vector<int>& members, int place) {
  const std::vector<Message> in_order = sent_by(operations, members);
  const Promise promise = promise_of(c, place, static_cast<int>(members.size()));
  const std::vector<Message> sent = sorted(in_order);
  const std::vector<Message> promised = sorted(promise.sends);
  if (may_be_cut(c, static_cast<int>(members.size())) && are_cut(sent, promised)) return;
  const std::string who = fmt::format("the numbers are right, but rank {}", place);
  if (sent.size() != promised.size())
    stop(fmt::format(
        "{} sends {}, not {}{}{}", who, counted(std::ssize(sent), "message"), promised.size(),
        reason_of(c, sent, promised, static_cast<int>(members.size())), details(sent, promised)));
  if (bytes_of(sent) != bytes_of(promised))
    stop(fmt::format("{} sends {} bytes, not {}{}", who, bytes_of(sent), bytes_of(promised),
                     details(sent, promised)));
  if (sent != promised)
    stop(fmt::format("{} sends to other ranks than the contract says, or other chunks{}", who,
                     details(sent, promised)));
  if (c.function == "doubling_all_reduce" && in_order != promise.sends)
    stop(fmt::format("{} sends to ranks {} one after the other, but the contract says {}{}", who,
                     fmt::join(receivers(in_order), ", "),
                     fmt::join(receivers(promise.sends), ", "),
                     reason_of(c, sent, promised, static_cast<int>(members.size()))));
}

/// If there is something to add in every step: that `combine` has been called often enough. Surplus
/// additions show in the numbers or in the time.
void expect_additions(const Case& c, const std::vector<Operation>& operations, int place, int n) {
  const auto additions = std::ranges::count(operations, OpKind::kAdd, &Operation::kind);
  const int promised = promise_of(c, place, n).additions;
  const bool has_chunks = c.function != "reduce_at_root" && c.function != "doubling_all_reduce";
  if (c.elements < (has_chunks ? n : 1) || additions >= promised) return;
  stop(
      fmt::format("the numbers and messages are right, but rank {} calls combine {} times, not {}: "
                  "the contract says which rank adds, and all additions must go through "
                  "lab::combine, which makes them take time in a simulation",
                  place, additions, promised));
}

void expect_scratch(const Case& c, const Parcel& result, int place, int ranks) {
  constexpr int64_t kMany = 20'000;  // elements: else the tensors are smaller than `works`
  if (c.elements < kMany) return;
  // Work objects, and entries of the flight record.
  const uint64_t works = (32 << 10) + 512 * operations_of(result).size();
  const auto used = static_cast<uint64_t>(result.number("scratch"));
  const uint64_t promised = promise_of(c, place, ranks).scratch;
  if (used > promised + works)
    stop(
        fmt::format("the numbers are right, but rank {} uses {} bytes of scratch: the contract "
                    "says {}\n(up to {} bytes more are allowed, for what messages need)",
                    place, used, promised, works));
  const auto kept = static_cast<uint64_t>(result.number("kept"));
  if (kept > works)
    stop(fmt::format(
        "the numbers are right, but rank {} still holds {} bytes of scratch when {} has "
        "returned: the functions keep nothing between calls",
        place, kept, c.function));
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
      "contract says {:.0f}: does every rank send and receive at the same time, and wait only "
      "for what it needs?\n"
      "{} elements on {} ranks; alpha {:g} ns, beta {:g} ns per byte, gamma {:g} ns",
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
    expect_messages_only(c, operations_of(results[rank]), rank);
    if (results[rank].has("inside")) expect_groups(c, results[rank], members, place);
    expect_chunks(c, operations_of(results[rank]), members, place);
  }
  expect_results(c, got, inputs);
  const auto result_of = [&](int place) -> const Parcel& {
    return results[static_cast<size_t>(members[static_cast<size_t>(place)])];
  };
  for (int place = 0; place < n; ++place)
    expect_sends(c, operations_of(result_of(place)), members, place);
  for (int place = 0; place < n; ++place) {
    expect_additions(c, operations_of(result_of(place)), place, n);
    if (options.network == lab::grading::Network::kSimulated)
      expect_scratch(c, result_of(place), place, n);
  }
  if (options.simulation.costs) expect_time(c, results, members, *options.simulation.costs);
}

}  // namespace

std::string scenario_of(const Case& c) {
  return c.function == "hierarchical_all_reduce" ? "hierarchical" : "reduction";
}

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
    if (c.other_hosts > 0) input.set("other_hosts", c.other_hosts);
    if (c.colors.empty()) continue;
    input.set("color", c.colors[static_cast<size_t>(r)]);
    input.set("key", ranks - r);
  }
  return inputs;
}

void expect_cases(const std::vector<Case>& cases, int ranks,
                  const lab::grading::JobOptions& options) {
  std::vector<lab::grading::Call> calls;
  for (const Case& c : cases)
    calls.push_back(
        {.scenario = scenario_of(c),
         .inputs = inputs_of(c, ranks),
         .name = fmt::format("{} of {} on {}{}", c.function, counted(c.elements, "element"),
                             counted(ranks, "rank"), details_of(c))});
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& results) {
    for (const std::vector<int>& members : groups_of(cases[k], ranks))
      judge_group(cases[k], results, members, options);
  });
}

}  // namespace lab07
