#include "tests/labs/11_parameter_server/staleness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "tests/grading/verdict.h"

namespace lab11 {
namespace {

struct OtherRule {
  const char* message;
  std::function<bool(const State&, int64_t n, int64_t s)> may;
};

int64_t oldest_of(const State& state) {
  int64_t oldest = state.version;
  for (const auto& [ticket, lease] : state.leases) oldest = std::min(oldest, lease.version);
  return oldest;
}

int64_t under_way(const State& state) {
  return state.gradients + static_cast<int64_t>(state.leases.size());
}

bool is_right(const State& state, int64_t n, int64_t s) {
  return state.version + under_way(state) / n - oldest_of(state) <= s;
}

const std::vector<OtherRule>& other_rules() {
  static const std::vector<OtherRule> rules{
      {"as if only the new gradient counted: an older lease may arrive last and be staler",
       [](const State& state, int64_t n, int64_t s) { return under_way(state) / n <= s; }},
      {"as if the gradients that wait for the next update were not there: they fill it up, too",
       [](const State& state, int64_t n, int64_t s) {
         return state.version + static_cast<int64_t>(state.leases.size()) / n - oldest_of(state) <=
                s;
       }},
      {"as if nothing were under way: the leases bring gradients, which fill updates before the "
       "last one arrives",
       [](const State& state, int64_t, int64_t s) {
         return state.version - oldest_of(state) <= s;
       }},
      {"too carefully by one: a staleness of exactly s is allowed",
       [](const State& state, int64_t n, int64_t s) {
         return state.version + under_way(state) / n - oldest_of(state) < s;
       }},
      {"too carefully by one: the new gradient itself does not fill an update before it arrives",
       [](const State& state, int64_t n, int64_t s) {
         return state.version + (under_way(state) + 1) / n - oldest_of(state) <= s;
       }},
      {"as if the quotient were rounded up: n gradients make one update",
       [](const State& state, int64_t n, int64_t s) {
         return state.version + (under_way(state) + n - 1) / n - oldest_of(state) <= s;
       }},
      {"by a count of gradients, not of updates of n gradients each",
       [](const State& state, int64_t, int64_t s) {
         return state.version + under_way(state) - oldest_of(state) <= s;
       }},
      {"by the newest lease: the oldest one is the problem",
       [](const State& state, int64_t n, int64_t s) {
         int64_t newest = 0;
         for (const auto& [ticket, lease] : state.leases) newest = std::max(newest, lease.version);
         if (state.leases.empty()) newest = state.version;
         return state.version + under_way(state) / n - newest <= s;
       }},
      {"no in every state: then no worker ever starts",
       [](const State&, int64_t, int64_t) { return false; }},
      {"yes only if there is no lease: those of other workers do not forbid another one",
       [](const State& state, int64_t, int64_t) { return state.leases.empty(); }},
  };
  return rules;
}

[[noreturn]] void explain(const std::vector<Asked>& asked, const Asked& wrong,
                          const std::string& where) {
  std::string why = "may_start is wrong about who may start";
  for (const OtherRule& rule : other_rules())
    if (std::ranges::all_of(
            asked, [&](const Asked& a) { return rule.may(a.state, a.n, a.s) == a.answer; })) {
      why = fmt::format("may_start answers {}", rule.message);
      break;
    }
  const int64_t last = wrong.state.version + under_way(wrong.state) / wrong.n;
  std::vector<int64_t> versions;
  for (const auto& [ticket, lease] : wrong.state.leases) versions.push_back(lease.version);
  lab::grading::stop(fmt::format(
      "{}\nthe answer is {}, and should be {}: with n = {}, s = {}, version {}, {} gradients for "
      "the next update and leases of versions {}, the last of all to arrive would be part of the "
      "update that is made at version {}, and the oldest version in use is {}{}",
      why, wrong.answer ? "yes" : "no", wrong.answer ? "no" : "yes", wrong.n,
      bound_in_words(wrong.s), wrong.state.version, wrong.state.gradients, versions, last,
      oldest_of(wrong.state), where));
}

}  // namespace

std::string bound_in_words(int64_t s) { return s > 1'000'000 ? "unbounded" : fmt::format("{}", s); }

void judge_may_start(int64_t n, int64_t s, const Answers& answers, const std::string& where) {
  const auto& [state, yes] = answers.back();
  if (yes == is_right(state, n, s)) return;
  std::vector<Asked> asked;
  for (const auto& [each, answer] : answers) asked.push_back({n, s, each, answer});
  explain(asked, asked.back(), where);
}

void judge_all(const std::vector<Asked>& asked) {
  for (const Asked& a : asked)
    if (a.answer != is_right(a.state, a.n, a.s)) explain(asked, a, "");
}

}  // namespace lab11
