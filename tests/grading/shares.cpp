// What is wrong with the shards of an epoch.
#include "tests/grading/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "common/format.h"

namespace lab::grading {
namespace {

struct Epoch {
  const Sequences& order;
  const std::vector<Sequences>& shares;
  const std::string& reader;

  size_t per_reader() const { return order.size() / shares.size(); }
};

/// Where a sequence that the epoch does not have may come from.
std::string origin(const Epoch& e, int64_t sequence) {
  if (sequence >= 0 && sequence < std::ssize(e.order))
    return fmt::format(
        "these are positions in `order`; shard must return the sequences at the {}'s positions, "
        "order[p] and not p",
        e.reader);
  const auto is_narrowed = [&](int64_t own) { return static_cast<int32_t>(own) == sequence; };
  if (std::ranges::any_of(e.order, is_narrowed))
    return "sequences are int64_t, and must not be narrowed to 32 bits";
  return "was it read from outside `order`?";
}

std::string foreign_sequence(const Epoch& e) {
  const std::unordered_set<int64_t> known(e.order.begin(), e.order.end());
  for (size_t r = 0; r < e.shares.size(); ++r)
    for (int64_t sequence : e.shares[r])
      if (!known.contains(sequence))
        return fmt::format("{} {} reads sequence {}, which the epoch does not have: {}", e.reader,
                           r, sequence, origin(e, sequence));
  return "";
}

/// Whether each shard is the whole order except for some sequences at its beginning.
bool skips_and_reads_the_rest(const Epoch& e) {
  for (const Sequences& share : e.shares) {
    const auto begin = share.empty() ? e.order.end() : std::ranges::find(e.order, share.front());
    for (size_t i = 0; i < share.size(); ++i)
      if (share[i] != e.order[(static_cast<size_t>(begin - e.order.begin()) + i) % e.order.size()])
        return false;
  }
  return e.shares[0].size() > e.per_reader();
}

std::string overlap(const Epoch& e) {
  if (e.shares.size() > 1 && !e.shares[0].empty() &&
      std::ranges::all_of(e.shares, [&](const Sequences& share) { return share == e.shares[0]; }))
    return fmt::format(
        "every {} reads the same sequences: they would all compute the same gradient, and one of "
        "them would be enough",
        e.reader);
  std::map<int64_t, size_t> readers;
  size_t twice = 0;
  std::string first;
  for (size_t r = 0; r < e.shares.size(); ++r)
    for (int64_t sequence : e.shares[r]) {
      const auto [before, is_new] = readers.emplace(sequence, r);
      if (is_new || twice++ > 0) continue;
      first = before->second == r
                  ? fmt::format("{} {} reads sequence {} twice", e.reader, r, sequence)
                  : fmt::format("sequence {} is read by {} {} and by {} {}", sequence, e.reader,
                                before->second, e.reader, r);
    }
  if (twice == 0) return "";
  if (skips_and_reads_the_rest(e))
    return fmt::format(
        "every {} skips some sequences and reads all others: a constant skip does not partition "
        "the epoch, the shards overlap ({})",
        e.reader, first);
  return fmt::format("the shards are not disjoint: {}{}", first,
                     twice > 1 ? fmt::format("; {} repeated reads in all", twice) : "");
}

std::string unequal_lengths(const Epoch& e) {
  const auto [least, most] = std::ranges::minmax_element(e.shares, {}, &Sequences::size);
  const auto shortest = least - e.shares.begin();
  const auto longest = most - e.shares.begin();
  if (least->size() != most->size())
    return fmt::format(
        "the shards are not equally long: {0} {1} has {2}, {0} {3} has {4}; with one "
        "sequence per step, {0} {1} would begin another step after step {4}, and wait for {0} "
        "{3} forever",
        e.reader, longest, counted(static_cast<int64_t>(most->size()), "sequence"), shortest,
        least->size());
  if (least->size() != e.per_reader())
    return fmt::format("every {0} reads {1} of the epoch's {2}; with {3} {0}s it should be {4}",
                       e.reader, counted(static_cast<int64_t>(least->size()), "sequence"),
                       e.order.size(), e.shares.size(), e.per_reader());
  return "";
}

std::string wrong_rest(const Epoch& e) {
  std::unordered_set<int64_t> read;
  for (const Sequences& share : e.shares) read.insert(share.begin(), share.end());
  for (size_t i = 0; i < e.per_reader() * e.shares.size(); ++i)
    if (!read.contains(e.order[i]))
      return fmt::format(
          "no {} reads sequence {} at position {} of the order: only the last {} may be left out "
          "(the remainder of order.size() divided by the number of {}s), so that each epoch "
          "leaves out different ones",
          e.reader, e.order[i], i, e.order.size() % e.shares.size(), e.reader);
  return "";
}

std::string lost_order(const Epoch& e) {
  std::map<int64_t, size_t> places;
  for (size_t i = 0; i < e.order.size(); ++i) places[e.order[i]] = i;
  for (size_t r = 0; r < e.shares.size(); ++r)
    for (size_t i = 1; i < e.shares[r].size(); ++i)
      if (const int64_t before = e.shares[r][i - 1], own = e.shares[r][i];
          places[own] < places[before])
        return fmt::format(
            "{} {} has sequence {} before {}, but the epoch has it after: keep the order of "
            "`order`. That order is the shuffle, and a sorted shard has lost it; so has a shard "
            "of positions p in place of order[p]",
            e.reader, r, before, own);
  return "";
}

}  // namespace

std::string unfair_shares(const Sequences& order, const std::vector<Sequences>& shares,
                          const std::string& reader) {
  const Epoch epoch{order, shares, reader};
  for (const auto& problem : {foreign_sequence, overlap, unequal_lengths, wrong_rest, lost_order})
    if (std::string message = problem(epoch); !message.empty()) return message;
  return "";
}

std::string in_words(const Sequences& sequences) {
  constexpr size_t kMost = 12;
  std::string text;
  for (size_t i = 0; i < std::min(sequences.size(), kMost); ++i)
    text += fmt::format(" {}", sequences[i]);
  return text.empty() ? " none" : text + (sequences.size() > kMost ? " ..." : "");
}

}  // namespace lab::grading
