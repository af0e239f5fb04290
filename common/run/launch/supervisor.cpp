// Supervisor: judges, or reports to rank 0 what only this launcher can see.
#include "common/run/launch/supervisor.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>

#include "common/comm/diagnosis/describe.h"
#include "common/error.h"
#include "common/io/terminal.h"
#include "common/parse_number.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/own_address.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// After a failure, time to see which ranks waited for it: what they did then is soon published.
constexpr milliseconds kPublished{400};
constexpr milliseconds kGraceOneHost{1500};
// With several hosts, rank 0 may need until silence is proof, if this launcher cannot reach it.
constexpr milliseconds kGraceSeveralHosts = Judge::kSilence + milliseconds(3000);
constexpr milliseconds kReachRankZero{1000};

/// Debian maps a machine's own name to a loopback address, where no other host can reach it.
void check_address(const std::string& address) {
  const std::string own = own_address_towards(address);
  require(
      is_loopback(address) || !is_loopback(own),
      "--master-addr {} is {} on this host, where other hosts cannot reach it: give its address "
      "in the network",
      address, own);
}

}  // namespace

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Supervisor::Supervisor(const LaunchOptions& options, const StartedRanks& ranks) : ranks_(ranks) {
  if (has_several_hosts(options)) {
    address_ = options.master_addr;
    port_ =
        options.master_port == 0 ? kDefaultMasterPort : static_cast<uint16_t>(options.master_port);
    if (options.node_rank == 0) check_address(address_);
    return;
  }
  server_ = std::make_unique<TcpStoreServer>(address_, uint16_t{0});
  port_ = server_->port();
  judge_ = std::make_unique<Judge>(server_->store(), options.ranks, [this](int rank) {
    return fate_of_child(*ranks_.children[static_cast<size_t>(rank)]);
  });
}

std::map<std::string, std::string> Supervisor::environment() const {
  std::map<std::string, std::string> result{{"MASTER_ADDR", address_},
                                            {"MASTER_PORT", std::to_string(port_)}};
  if (server_) result.insert({kStoreServedVariable, "1"});
  return result;
}

bool Supervisor::is_over() {
  const auto since_failure = [&] {
    return ranks_.failed_at ? Clock::now() - *ranks_.failed_at : Clock::duration(0);
  };
  if (!judge_) {
    for (; told_ < ranks_.failed.size(); ++told_) tell_rank_zero(ranks_.failed[told_]);
    return since_failure() > kGraceSeveralHosts;
  }
  diagnosis_ = judge_->look();
  if (!diagnosis_ && since_failure() > kPublished) diagnosis_ = judge_->explain_end();
  return diagnosis_ || since_failure() > kGraceOneHost;
}

void Supervisor::tell_rank_zero(size_t failed) const {
  if (code_of(failed) == kDiagnosedExit) return;  // all ranks know
  try {
    TcpStore store(address_, port_, kReachRankZero);
    store.set(job_keys::ended(ranks_.first + static_cast<int>(failed)),
              std::to_string(ranks_.children[failed]->wait_status()));
  } catch (const Error&) {  // rank 0 is gone or unreachable: missing snapshots must suffice
  }
}

int Supervisor::code_of(size_t i) const { return exit_code_of(ranks_.children[i]->wait_status()); }

/// Of the ranks that the launcher did not end, the one whose failure most likely caused the others.
size_t Supervisor::first_failed() const {
  return *std::ranges::min_element(ranks_.failed, {}, [&](size_t i) {
    if (WIFSIGNALED(ranks_.children[i]->wait_status())) return -1;
    if (code_of(i) == kDiagnosedExit) return INT_MAX;
    if (!server_) return 0;
    // For a rank that an exception has ended: its place in the order of failures.
    const auto number = server_->store().try_get(job_keys::failed(static_cast<int>(i)));
    return static_cast<int>(parse_number<int64_t>(number.value_or("")).value_or(0));
  });
}

int Supervisor::report() {
  const auto& [first_rank, children, failed, failed_at, ended_others] = ranks_;
  if (judge_ && !failed.empty() && !diagnosis_) diagnosis_ = judge_->explain_end();
  if (diagnosis_) {
    print_if_possible(stderr, "error: {}\n", diagnosis_->text());
    const auto cause = static_cast<size_t>(diagnosis_->ranks[0]);
    return std::ranges::count(failed, cause) == 0 ? kDiagnosedExit : code_of(cause);
  }
  if (failed.empty()) return 0;

  const size_t first = first_failed();
  const int code = code_of(first);
  const auto [fate, status] = fate_of_ended(children[first]->wait_status());
  const bool alike = failed.size() == children.size() &&
                     std::ranges::all_of(failed, [&](size_t i) { return code_of(i) == code; });
  const char* others = ended_others ? "; the others were ended" : "";
  if (code == kDiagnosedExit) {
    std::vector<int> diagnosed;
    for (const size_t i : failed) diagnosed.push_back(first_rank + static_cast<int>(i));
    std::ranges::sort(diagnosed);
    print_if_possible(stderr, "error: the job cannot go on, for the reason that {} gave above{}\n",
                      list_ranks(diagnosed), others);
  } else if (!judge_ && alike && (code == 128 + SIGINT || code == 128 + SIGTERM)) {
    print_if_possible(stderr, "the job was interrupted on another host\n");
  } else if (alike && children.size() > 1) {
    // With an exit code, each has said why.
    print_if_possible(stderr, "{}all ranks {}{}\n", fate == RankFate::kKilled ? "error: " : "",
                      judge_ ? "" : "of this host ",
                      fate == RankFate::kKilled ? "were " + describe_signal(status)
                                                : fmt::format("exited with code {}", status));
  } else {
    RankSnapshot rank;
    rank.rank = first_rank + static_cast<int>(first);
    rank.fate = fate;
    rank.status = status;
    print_if_possible(stderr, "error: {}{}\n", describe_fate(rank), others);
  }
  return code;
}

}  // namespace lab
