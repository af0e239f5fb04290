// One loop: outputs, signals, ends, looks.
#include "common/launch/launcher.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/comm/describe.h"
#include "common/comm/diagnosis.h"
#include "common/comm/tcp_store.h"
#include "common/launch/child_process.h"
#include "common/launch/job.h"
#include "common/launch/job_keys.h"
#include "common/launch/local_ranks.h"
#include "common/launch/meeting_judge.h"
#include "common/launch/prefix_output.h"
#include "common/launch/rank_list.h"
#include "common/launch/scratch_folder.h"
#include "common/launch/signal_queue.h"
#include "common/tensor/error.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kPollMilliseconds = 20;
constexpr milliseconds kBetweenLooks{200};
constexpr milliseconds kGrace{1000};           // after a failure, to see who waited for the rank
constexpr milliseconds kAfterTerm{2000};       // from SIGTERM to SIGKILL
constexpr milliseconds kAfterInterrupt{7000};  // for a checkpoint

bool is_end_in_failure(int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Launch {
 public:
  Launch(const LaunchOptions& options, int argc, const char* const* argv)
      : ranks_(static_cast<size_t>(options.ranks)), server_("127.0.0.1", 0), meetings_(ranks_) {
    std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe")};
    command.insert(command.end(), argv + std::min(argc, 1), argv + argc);
    for (size_t rank = 0; rank < ranks_; ++rank) start(command, rank);
  }

  int run() {
    while (take_ends()) {
      pass_on_outputs();
      take_signals();
      if (broken_output_ && !interrupted_) interrupt(SIGTERM);
      look();
      end_overdue();
      wait_for_news();
    }
    for (const auto& output : outputs_) output->finish(signals_.descriptor());
    return report();
  }

 private:
  void start(const std::vector<std::string>& command, size_t rank) {
    const std::string prefix = fmt::format("[{}] ", rank);
    const auto out = std::make_shared<PrefixOutput>(prefix, STDOUT_FILENO);
    const auto error = std::make_shared<PrefixOutput>(prefix, STDERR_FILENO);
    children_.push_back(std::make_unique<ChildProcess>(
        command, environment_of(rank),
        ChildProcess::Outputs{out->writing_end(), error->writing_end()}));
    for (const auto& output : {out, error}) {
      output->close_writing_end();
      outputs_.push_back(output);
    }
  }

  std::map<std::string, std::string> environment_of(size_t rank) const {
    const std::string size = std::to_string(ranks_);
    std::map<std::string, std::string> environment{
        {"RANK", std::to_string(rank)}, {"LOCAL_RANK", std::to_string(rank)},
        {"WORLD_SIZE", size},           {"LOCAL_WORLD_SIZE", size},
        {"MASTER_ADDR", "127.0.0.1"},   {"MASTER_PORT", std::to_string(server_.port())},
        {kStoreServedVariable, "1"},    {kRecordsVariable, folder_.path()}};
    const size_t cores = std::max(1U, std::thread::hardware_concurrency());
    const auto unless_set = [&](const char* name, const std::string& value) {
      if (std::getenv(name) == nullptr) environment.insert({name, value});
    };
    unless_set("OMP_NUM_THREADS", std::to_string(std::max<size_t>(1, cores / ranks_)));
    // Threads that wait in a loop instead of sleeping take the cores from other ranks.
    unless_set("OMP_WAIT_POLICY", "PASSIVE");
    // Ranks write into a pipe; what comes out may still go to a terminal.
    if (isatty(STDOUT_FILENO) == 1) unless_set("CLICOLOR_FORCE", "1");
    return environment;
  }

  /// Notes the ends of ranks; false when all have ended.
  bool take_ends() {
    bool any_running = false;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      ChildProcess& child = *children_[rank];
      if (child.running()) {
        any_running = true;
        continue;
      }
      if (!is_end_in_failure(child.wait_status()) || std::ranges::count(failed_, rank) > 0)
        continue;
      if (ending_ || interrupted_) continue;  // this launcher's doing
      failed_.push_back(rank);
      if (!failure_at_) failure_at_ = Clock::now();
    }
    return any_running;
  }

  void pass_on_outputs() {
    for (const auto& output : outputs_)
      if (!output->pass_on(signals_.descriptor())) broken_output_ = true;
  }

  void take_signals() {
    while (const auto signal = signals_.next()) {
      if (interrupted_)
        kill_at_ = Clock::now();
      else
        interrupt(*signal == SIGHUP ? SIGTERM : *signal);
    }
  }

  void interrupt(int signal) {
    interrupted_ = signal;
    for (const auto& child : children_) child->send_signal(signal);
    kill_at_ = std::min(kill_at_, Clock::now() + kAfterInterrupt);
  }

  /// Looks for a reason why the job cannot go on; after a failure, only for the grace time.
  void look() {
    const auto now = Clock::now();
    if (ending_ || now < next_look_) return;
    next_look_ = now + kBetweenLooks;
    const std::vector<RankSnapshot> ranks = look_at_ranks(folder_.path(), children_);
    diagnosis_ = failure_at_ ? explain_failure(ranks) : judge_.look(ranks);
    if (!diagnosis_) diagnosis_ = meetings_.look(server_.store(), ranks);
    if (diagnosis_ || (failure_at_ && now > *failure_at_ + kGrace)) end_all();
  }

  void end_all() {
    ending_ = true;
    for (const auto& child : children_) {
      if (child->running()) ended_others_ = true;
      child->send_signal(SIGTERM);
      child->send_signal(SIGCONT);  // a stopped process would not notice
    }
    kill_at_ = std::min(kill_at_, Clock::now() + kAfterTerm);
  }

  void end_overdue() {
    if (Clock::now() < kill_at_) return;
    ending_ = true;
    for (const auto& child : children_) child->end();
  }

  void wait_for_news() {
    std::vector<pollfd> news{{signals_.descriptor(), POLLIN, 0}};
    for (const auto& output : outputs_)
      if (output->reading_end() >= 0) news.push_back({output->reading_end(), POLLIN, 0});
    poll(news.data(), news.size(), kPollMilliseconds);
  }

  /// When a rank has ended, those that wait for it often end soon with an error of their own. Their
  /// records still say what they waited for: seen as if they were alive, they show who was first.
  std::optional<Diagnosis> explain_failure(std::vector<RankSnapshot> ranks) const {
    for (const size_t rank : failed_) {
      RankSnapshot& snapshot = ranks[rank];
      if (failure_number(rank) == 0 || snapshot.waiting() == nullptr) continue;
      snapshot.fate = RankFate::kRunning;
      snapshot.left = false;
    }
    auto diagnosis = diagnose(ranks, ranks);
    if (diagnosis && diagnosis->kind != Diagnosis::Kind::kRankEnded) diagnosis.reset();
    return diagnosis;
  }

  /// Of a rank that an exception has ended: the how manieth it was. 0: the rank did not say so.
  int failure_number(size_t rank) const {
    const auto number = server_.store().try_get(job_keys::failed(static_cast<int>(rank)));
    return number ? std::stoi(*number) : 0;
  }

  /// Of the ranks that failed by themselves, the one that most likely made the others fail.
  size_t first_failed() const {
    return *std::ranges::min_element(failed_, {}, [&](size_t rank) {
      return WIFSIGNALED(children_[rank]->wait_status()) ? -1 : failure_number(rank);
    });
  }

  int report() {
    if (interrupted_) return broken_output_ ? 128 + SIGPIPE : 128 + interrupted_;
    const std::vector<RankSnapshot> ranks = look_at_ranks(folder_.path(), children_);
    if (!failed_.empty() && !diagnosis_) diagnosis_ = explain_failure(ranks);
    if (diagnosis_) {
      fmt::print(stderr, "error: {}\n", diagnosis_->text());
      const auto cause = static_cast<size_t>(diagnosis_->ranks[0]);
      if (std::ranges::count(failed_, cause) == 0) return kDiagnosedExit;
      return exit_code_of(children_[cause]->wait_status());
    }
    if (failed_.empty()) return 0;
    const size_t first = first_failed();
    const int status = children_[first]->wait_status();
    const bool alike = failed_.size() == ranks_ && std::ranges::all_of(failed_, [&](size_t rank) {
                         return children_[rank]->wait_status() == status;
                       });
    fmt::print(stderr, "error: {}{}\n", alike ? "all ranks failed" : describe_fate(ranks[first]),
               ended_others_ ? "; the others were ended" : "");
    return exit_code_of(status);
  }

  SignalQueue signals_;  // before any thread
  size_t ranks_;
  ScratchFolder folder_;
  mutable TcpStoreServer server_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<std::shared_ptr<PrefixOutput>> outputs_;
  Judge judge_;
  MeetingJudge meetings_;

  Clock::time_point next_look_ = Clock::now() + kBetweenLooks;
  std::vector<size_t> failed_;  // by themselves, in the order in which it was noticed
  std::optional<Clock::time_point> failure_at_;
  std::optional<Diagnosis> diagnosis_;
  bool ending_ = false;  // the ranks that still run are being ended
  bool ended_others_ = false;
  int interrupted_ = 0;         // the signal
  bool broken_output_ = false;  // nobody reads what the ranks say
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace

int launch_ranks(const LaunchOptions& options, int argc, const char* const* argv) {
  std::fflush(nullptr);  // what this process has said comes first
  return Launch(options, argc, argv).run();
}

}  // namespace lab
