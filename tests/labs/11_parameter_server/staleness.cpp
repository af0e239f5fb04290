#include "tests/labs/11_parameter_server/staleness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "tests/grading/verdict.h"

namespace lab11 {
namespace {

int64_t oldest_of(const State& state) {
  int64_t oldest = state.version;
  for (const auto& [ticket, lease] : state.leases) oldest = std::min(oldest, lease.version);
  return oldest;
}

int64_t leases_of(const State& state) { return static_cast<int64_t>(state.leases.size()); }
int64_t under_way(const State& state) { return state.gradients + leases_of(state); }

/// The staleness that could arise if `before` gradients came before the last one.
int64_t worst(const Asked& a, int64_t before) {
  return a.state.version + before / a.n - oldest_of(a.state);
}
bool is_right(const Asked& a) { return worst(a, under_way(a.state)) <= a.s; }

struct OtherRule {
  const char* message;
  std::function<bool(const Asked&)> may;
};

const std::vector<OtherRule>& other_rules() {
  static const std::vector<OtherRule> rules{
      {"no in every state: then no worker ever starts", [](const Asked&) { return false; }},
      {"yes in every state, as if nothing were under way: the leases bring gradients, which fill "
       "updates before the last one arrives",
       [](const Asked&) { return true; }},
      {"as if only the new gradient counted: an older lease may arrive last and be staler",
       [](const Asked& a) { return under_way(a.state) / a.n <= a.s; }},
      {"as if the gradients that wait for the next update were not there: they fill it up, too",
       [](const Asked& a) { return worst(a, leases_of(a.state)) <= a.s; }},
      {"too strictly by one: a staleness of exactly s is allowed",
       [](const Asked& a) { return worst(a, under_way(a.state)) < a.s; }},
      {"too leniently by one: a staleness of s + 1 could happen",
       [](const Asked& a) { return worst(a, under_way(a.state)) - 1 <= a.s; }},
      {"too strictly by one: the new gradient itself does not fill an update before it arrives",
       [](const Asked& a) { return worst(a, under_way(a.state) + 1) <= a.s; }},
      {"as if the quotient were rounded up: n gradients make one update",
       [](const Asked& a) { return worst(a, under_way(a.state) + a.n - 1) <= a.s; }},
      {"by a count of gradients, not of updates of n gradients each",
       [](const Asked& a) {
         return a.state.version + under_way(a.state) - oldest_of(a.state) <= a.s;
       }},
      {"by the newest lease: the oldest one is the problem",
       [](const Asked& a) {
         const int64_t newest =
             a.state.leases.empty() ? a.state.version : a.state.leases.rbegin()->second.version;
         return a.state.version + under_way(a.state) / a.n - newest <= a.s;
       }},
      {"as if returned items were under way: nobody computes them now",
       [](const Asked& a) {
         return worst(a, under_way(a.state) + static_cast<int64_t>(a.state.returned.size())) <= a.s;
       }},
      {"yes only if there is no lease: those of other workers do not forbid another one",
       [](const Asked& a) { return a.state.leases.empty(); }},
  };
  return rules;
}

/// What the states with wrong answers may have in common.
struct Trait {
  const char* name;
  std::function<bool(const Asked&)> has;
  bool is_rare = false;  // a single state with it tells enough
};

const std::vector<Trait>& traits() {
  static const std::vector<Trait> all{
      {"without a bound: kUnbounded is larger than any int, and n times as much overflows",
       [](const Asked& a) { return a.s == kUnbounded; }, true},
      {"of runs without a new item: whether there is one is on_pull's question",
       [](const Asked& a) { return a.state.next_item >= a.items; }, true},
      {"with versions above 2^24: they are int64_t",
       [](const Asked& a) { return a.state.version >= int64_t{1} << 24; }},
      {"with a bound above 100", [](const Asked& a) { return a.s > 100; }},
      {"with more than 60 leases", [](const Asked& a) { return leases_of(a.state) > 60; }},
      {"with returned items", [](const Asked& a) { return !a.state.returned.empty(); }},
      {"with n = 1", [](const Asked& a) { return a.n == 1; }},
      {"with n above 5", [](const Asked& a) { return a.n > 5; }},
      {"with s = 0", [](const Asked& a) { return a.s == 0; }},
      {"without leases", [](const Asked& a) { return a.state.leases.empty(); }},
      {"with one lease", [](const Asked& a) { return leases_of(a.state) == 1; }},
      {"whose oldest lease is s versions old",
       [](const Asked& a) { return a.state.version - oldest_of(a.state) == a.s; }},
      {"with leases of older versions",
       [](const Asked& a) { return oldest_of(a.state) < a.state.version; }},
      {"with gradients that wait for the next update",
       [](const Asked& a) { return a.state.gradients > 0; }},
  };
  return all;
}

/// Which mistake the wrong answers show. A few answers fit too many.
std::string explained(const Answers& asked) {
  constexpr size_t kMany = 20, kSeveral = 5;
  for (const OtherRule& rule : other_rules())
    if (asked.size() >= kMany &&
        std::ranges::all_of(asked, [&](const Asked& a) { return rule.may(a) == a.answer; }))
      return fmt::format("may_start answers {}", rule.message);
  Answers wrong;
  std::ranges::copy_if(asked, std::back_inserter(wrong),
                       [](const Asked& a) { return a.answer != is_right(a); });
  const auto bold = std::ranges::count_if(wrong, [](const Asked& a) { return a.answer; });
  const auto size = static_cast<std::ptrdiff_t>(wrong.size());
  std::string why = fmt::format("may_start {} in {} of {} states",
                                bold == size ? "says yes where the bound could break"
                                : bold == 0  ? "says no where the bound cannot break"
                                             : "is wrong in both directions",
                                size, asked.size());
  for (const Trait& trait : traits())
    if ((trait.is_rare || wrong.size() >= kSeveral) && std::ranges::all_of(wrong, trait.has))
      return why + ", all " + trait.name;
  return why;
}

[[noreturn]] void explain(const Answers& asked, const Asked& wrong, const std::string& where) {
  const int64_t last = wrong.state.version + under_way(wrong.state) / wrong.n;
  std::vector<std::string> versions;
  for (const auto& [ticket, lease] : wrong.state.leases) {
    versions.push_back(versions.size() < 12 ? std::to_string(lease.version) : "...");
    if (versions.back() == "...") break;
  }
  lab::grading::stop(fmt::format(
      "{}\nthe answer is {}, but should be {}: with n = {}, s = {}, version {}, {} gradients for "
      "the next update and {} leases of versions [{}], the last of all to arrive would be part of "
      "the update that is made at version {}, and the oldest version in use is {}{}",
      explained(asked), wrong.answer ? "yes" : "no", wrong.answer ? "no" : "yes", wrong.n,
      bound_in_words(wrong.s), wrong.state.version, wrong.state.gradients,
      wrong.state.leases.size(), fmt::join(versions, ", "), last, oldest_of(wrong.state), where));
}

}  // namespace

std::string bound_in_words(int64_t s) {
  return s == kUnbounded ? "unbounded" : fmt::format("{}", s);
}

void judge_last(const Answers& asked, const std::string& where) {
  if (asked.back().answer != is_right(asked.back())) explain(asked, asked.back(), where);
}

void judge_all(const Answers& asked) {
  const Asked* simplest = nullptr;
  const auto size = [](const Asked& a) { return a.state.version + under_way(a.state); };
  for (const Asked& a : asked)
    if (a.answer != is_right(a) && (simplest == nullptr || size(a) < size(*simplest)))
      simplest = &a;
  if (simplest != nullptr) explain(asked, *simplest, "");
}

}  // namespace lab11
