// With the flight records of all ranks at hand, the launcher judges the job itself.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>

#include "common/comm/diagnosis/describe.h"
#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/store/tcp_store.h"
#include "common/run/launch/local_ranks.h"
#include "common/run/launch/oversight.h"
#include "common/run/launch/scratch_folder.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/watch/meeting_judge.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{1};  // after a failure, to see which ranks waited for it

class OneHost final : public Oversight {
 public:
  explicit OneHost(size_t ranks) : server_("127.0.0.1", 0), meetings_(ranks) {}

  std::map<std::string, std::string> environment() const override {
    return {{"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(server_.port())},
            {kStoreServedVariable, "1"},
            {kRecordsVariable, folder_.path()}};
  }

  /// Looks for a reason why the job cannot go on; after a failure, only for the grace time.
  bool is_over(const StartedRanks& started) override {
    const std::vector<RankSnapshot> ranks = look_at_ranks(folder_.path(), started.children);
    diagnosis_ = started.failed_at ? explain_failure(started, ranks) : judge_.look(ranks);
    if (!diagnosis_) diagnosis_ = meetings_.look(server_.store(), ranks);
    return diagnosis_ || (started.failed_at && Clock::now() > *started.failed_at + kGrace);
  }

  int report(const StartedRanks& started) override {
    const auto& [first_rank, children, failed, failed_at, ended_others] = started;
    const std::vector<RankSnapshot> ranks = look_at_ranks(folder_.path(), children);
    if (!failed.empty() && !diagnosis_) diagnosis_ = explain_failure(started, ranks);
    if (diagnosis_) {
      fmt::print(stderr, "error: {}\n", diagnosis_->text());
      const auto cause = static_cast<size_t>(diagnosis_->ranks[0]);
      if (std::ranges::count(failed, cause) == 0) return kDiagnosedExit;
      return exit_code_of(children[cause]->wait_status());
    }
    if (failed.empty()) return 0;
    const size_t first = first_failed(started);
    const int status = children[first]->wait_status();
    const bool alike =
        failed.size() == children.size() && std::ranges::all_of(children, [&](const auto& child) {
          return child->wait_status() == status;
        });
    fmt::print(stderr, "error: {}{}\n", alike ? "all ranks failed" : describe_fate(ranks[first]),
               ended_others ? "; the others were ended" : "");
    return exit_code_of(status);
  }

 private:
  /// When a rank has ended, those that wait for it often end soon afterwards with errors of their
  /// own. Their records still say what they were waiting for; treating them as alive shows which
  /// rank was first.
  std::optional<Diagnosis> explain_failure(const StartedRanks& started,
                                           std::vector<RankSnapshot> ranks) const {
    for (const size_t rank : started.failed) {
      RankSnapshot& snapshot = ranks[rank];
      if (failure_number(rank) == 0 || snapshot.waiting() == nullptr) continue;
      snapshot.fate = RankFate::kRunning;
      snapshot.left = false;
    }
    auto diagnosis = diagnose(ranks, ranks);
    if (diagnosis && diagnosis->kind != Diagnosis::Kind::kRankEnded) diagnosis.reset();
    return diagnosis;
  }

  /// For a rank that an exception has ended: its place in the order of failures. 0: the rank did
  /// not report one.
  int failure_number(size_t rank) const {
    const auto number = server_.store().try_get(job_keys::failed(static_cast<int>(rank)));
    return number ? std::stoi(*number) : 0;
  }

  /// Of the ranks that the launcher did not end, the one whose failure most likely caused the
  /// others.
  size_t first_failed(const StartedRanks& started) const {
    return *std::ranges::min_element(started.failed, {}, [&](size_t rank) {
      return WIFSIGNALED(started.children[rank]->wait_status()) ? -1 : failure_number(rank);
    });
  }

  ScratchFolder folder_;
  mutable TcpStoreServer server_;
  Judge judge_;
  MeetingJudge meetings_;
  std::optional<Diagnosis> diagnosis_;
};

}  // namespace

std::unique_ptr<Oversight> oversee_one_host(size_t ranks) {
  return std::make_unique<OneHost>(ranks);
}

}  // namespace lab
