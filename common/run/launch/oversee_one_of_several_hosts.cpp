// The ranks judge the job themselves; the launcher reports what only it can see.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "common/comm/diagnosis/describe.h"
#include "common/comm/store/tcp_store.h"
#include "common/error.h"
#include "common/run/launch/oversight.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/own_address.h"
#include "common/run/watch/beat_judge.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;

// After a failure here: time for the watchdogs to notice it, even without this launcher's report.
constexpr std::chrono::seconds kGrace = BeatJudge::kSilence + std::chrono::seconds(3);
constexpr std::chrono::seconds kPatience{1};  // to reach the store

RankSnapshot end_of(int rank, int status) {
  RankSnapshot snapshot;
  snapshot.rank = rank;
  snapshot.fate = WIFSIGNALED(status) ? RankFate::kKilled : RankFate::kExited;
  snapshot.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return snapshot;
}

/// Debian maps a machine's own name to a loopback address, where no other host can reach it.
void check_address(const std::string& address) {
  const auto is_loopback = [](const std::string& text) {
    return text == "localhost" || text == "::1" || text.starts_with("127.");
  };
  const std::string own = own_address_towards(address);
  require(
      is_loopback(address) || !is_loopback(own),
      "--master-addr {} is {} on this host, where other hosts cannot reach it: give its address "
      "in the network",
      address, own);
}

class OneOfSeveralHosts final : public Oversight {
 public:
  explicit OneOfSeveralHosts(const LaunchOptions& options)
      : address_(options.master_addr),
        port_(options.master_port == 0 ? kDefaultMasterPort
                                       : static_cast<uint16_t>(options.master_port)) {
    if (options.node_rank == 0) check_address(address_);
  }

  std::map<std::string, std::string> environment() const override {
    return {{"MASTER_ADDR", address_}, {"MASTER_PORT", std::to_string(port_)}};
  }

  bool is_over(const StartedRanks& ranks) override {
    for (; told_ < ranks.failed.size(); ++told_) tell(ranks, ranks.failed[told_]);
    return ranks.failed_at && Clock::now() > *ranks.failed_at + kGrace;
  }

  int report(const StartedRanks& ranks) override {
    if (ranks.failed.empty()) return 0;
    const auto code = [&](size_t i) { return exit_code_of(ranks.children[i]->wait_status()); };
    const auto all_have = [&](int value) {
      return ranks.failed.size() == ranks.children.size() &&
             std::ranges::all_of(ranks.failed, [&](size_t i) { return code(i) == value; });
    };
    const auto cause =
        std::ranges::find_if(ranks.failed, [&](size_t i) { return code(i) != kDiagnosedExit; });
    const char* others = ranks.ended_others ? "; the others were ended" : "";
    if (cause == ranks.failed.end()) {
      fmt::print(stderr, "error: the job cannot go on, for the reason that {} gave above{}\n",
                 list_ranks(numbers(ranks)), others);
      return kDiagnosedExit;
    }
    if (all_have(128 + SIGINT) || all_have(128 + SIGTERM))
      fmt::print(stderr, "the job was interrupted on another host\n");
    else if (ranks.children.size() > 1 && all_have(code(*cause)))
      fmt::print(stderr, "error: all ranks of this host failed\n");
    else
      fmt::print(stderr, "error: {}{}\n",
                 describe_fate(end_of(ranks.first + static_cast<int>(*cause),
                                      ranks.children[*cause]->wait_status())),
                 others);
    return code(*cause);
  }

 private:
  /// Those that have failed.
  static std::vector<int> numbers(const StartedRanks& ranks) {
    std::vector<int> result;
    for (const size_t i : ranks.failed) result.push_back(ranks.first + static_cast<int>(i));
    std::ranges::sort(result);
    return result;
  }

  void tell(const StartedRanks& ranks, size_t i) const {
    const int status = ranks.children[i]->wait_status();
    if (exit_code_of(status) == kDiagnosedExit) return;  // all ranks know
    try {
      TcpStore store(address_, port_, kPatience);
      store.set(job_keys::ended(ranks.first + static_cast<int>(i)), std::to_string(status));
    } catch (const Error&) {  // rank 0 is gone or unreachable: the missing heartbeats must suffice
    }
  }

  std::string address_;
  uint16_t port_;
  size_t told_ = 0;
};

}  // namespace

std::unique_ptr<Oversight> oversee_one_of_several_hosts(const LaunchOptions& options) {
  return std::make_unique<OneOfSeveralHosts>(options);
}

}  // namespace lab
