// One loop: handles output, signals and ended ranks.
#include "common/run/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "common/comm/diagnosis/describe.h"
#include "common/run/launch/prefix_output.h"
#include "common/run/launch/signal_queue.h"
#include "common/run/launch/supervisor.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kPollMilliseconds = 20;
constexpr milliseconds kBetweenLooks{100};
constexpr milliseconds kAfterTerm{2000};  // from SIGTERM to SIGKILL
constexpr milliseconds kUntilTold{2000};  // that ranks are writing a checkpoint
constexpr std::chrono::minutes kUnattended{
    5};  // from SIGTERM to SIGKILL where nobody can ask twice

class Launch {
 public:
  Launch(const LaunchOptions& options, int argc, const char* const* argv)
      : world_size_(options.ranks),
        local_size_(options.ranks / std::max(1, options.nnodes)),
        supervisor_(options, ranks_) {
    ranks_.first = local_size_ * std::max(0, options.node_rank);
    std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe")};
    command.insert(command.end(), argv + std::min(argc, 1), argv + argc);
    for (int local_rank = 0; local_rank < local_size_; ++local_rank) start(command, local_rank);
  }

  int run() {
    while (take_ends()) {
      pass_on_outputs();
      take_signals();
      if (broken_output_ && !interrupted_) interrupt_unattended();
      look();
      end_overdue();
      tell_what_is_awaited();
      wait_for_news();
    }
    for (const auto& output : outputs_) note_error(output->finish(signals_.descriptor()));
    const int code = report();
    if (code != 0 || lost_output_ == 0) return code;
    say(fmt::format("error: cannot write the output of the ranks: {}\n",
                    std::strerror(lost_output_)));
    return 128 + SIGPIPE;  // a restart does not mend that
  }

 private:
  void start(const std::vector<std::string>& command, int local_rank) {
    const std::string prefix = fmt::format("[{}] ", ranks_.first + local_rank);
    const auto out = std::make_shared<PrefixOutput>(prefix, STDOUT_FILENO, errors_);
    const auto error = std::make_shared<PrefixOutput>(prefix, STDERR_FILENO, errors_);
    ranks_.children.push_back(std::make_unique<ChildProcess>(
        command, environment_of(local_rank),
        ChildProcess::Outputs{out->writing_end(), error->writing_end()}));
    for (const auto& output : {out, error}) {
      output->close_writing_end();
      outputs_.push_back(output);
    }
  }

  std::map<std::string, std::string> environment_of(int local_rank) const {
    auto environment = supervisor_.environment();
    environment.insert({{"RANK", std::to_string(ranks_.first + local_rank)},
                        {"WORLD_SIZE", std::to_string(world_size_)},
                        {"LOCAL_RANK", std::to_string(local_rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(local_size_)}});
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const auto unless_set = [&](const char* name, const std::string& value) {
      if (std::getenv(name) == nullptr) environment.insert({name, value});
    };
    unless_set("OMP_NUM_THREADS", std::to_string(std::max(1, cores / local_size_)));
    // Threads that spin while waiting would take the cores from other ranks.
    unless_set("OMP_WAIT_POLICY", "PASSIVE");
    // Ranks write into a pipe, but their output may still go to a terminal.
    if (isatty(STDOUT_FILENO) == 1) unless_set("CLICOLOR_FORCE", "1");
    return environment;
  }

  /// Records which ranks have ended; false when all have.
  bool take_ends() {
    bool any_running = false;
    for (size_t i = 0; i < ranks_.children.size(); ++i) {
      ChildProcess& child = *ranks_.children[i];
      if (child.running()) {
        any_running = true;
        continue;
      }
      const bool known = std::ranges::count(ranks_.failed, i) > 0;
      if (known || exit_code_of(child.wait_status()) == 0) continue;
      if (ending_ || was_told_to_end(child)) continue;  // this launcher ended it
      ranks_.failed.push_back(i);
      if (!ranks_.failed_at) ranks_.failed_at = Clock::now();
    }
    return any_running;
  }

  /// Ended by a signal that this launcher, or that of another host, has forwarded, possibly after
  /// writing a checkpoint.
  bool was_told_to_end(const ChildProcess& child) const {
    const int code = exit_code_of(child.wait_status());
    return interrupted_ != 0 && (code == 128 + SIGINT || code == 128 + SIGTERM);
  }

  void pass_on_outputs() {
    for (const auto& output : outputs_) {
      const int error = output->pass_on(signals_.descriptor());
      note_error(error);
      if (error == EPIPE) broken_output_ = true;
    }
  }

  void note_error(int error) {
    if (error != 0 && error != EPIPE) lost_output_ = error;
  }

  void take_signals() {
    while (const auto signal = signals_.next()) {
      if (interrupted_)
        kill_at_ = Clock::now();
      else if (*signal == SIGHUP)
        interrupt_unattended();
      else
        interrupt(*signal);
    }
  }

  /// Only the user can know how long a step takes, and so how long it is until its checkpoint.
  void interrupt(int signal) {
    interrupted_ = signal;
    for (const auto& child : ranks_.children) child->send_signal(signal);
    tell_at_ = Clock::now() + kUntilTold;
  }

  /// The terminal, or whatever read the output, is gone.
  void interrupt_unattended() {
    interrupt(SIGTERM);
    kill_at_ = std::min<Clock::time_point>(kill_at_, Clock::now() + kUnattended);
  }

  void tell_what_is_awaited() {
    if (ending_ || Clock::now() < tell_at_) return;
    tell_at_ = Clock::time_point::max();
    say(fmt::format("waiting for the step to end; {} to kill\n",
                    interrupted_ == SIGINT ? "Ctrl-C again" : "a second signal"));
  }

  void say(const std::string& line) { write_all(STDERR_FILENO, line, signals_.descriptor()); }

  void look() {
    if (ending_ || Clock::now() < next_look_) return;
    next_look_ = Clock::now() + kBetweenLooks;
    if (supervisor_.is_over()) end_all();
  }

  void end_all() {
    ending_ = true;
    for (const auto& child : ranks_.children) {
      if (child->running()) ranks_.ended_others = true;
      child->send_signal(SIGTERM);
      child->send_signal(SIGCONT);  // a stopped process would not notice
    }
    kill_at_ = std::min(kill_at_, Clock::now() + kAfterTerm);
  }

  void end_overdue() {
    if (Clock::now() < kill_at_) return;
    kill_at_ = Clock::time_point::max();
    ending_ = true;
    std::vector<int> killed;
    for (size_t i = 0; i < ranks_.children.size(); ++i) {
      ChildProcess& child = *ranks_.children[i];
      if (child.running()) killed.push_back(ranks_.first + static_cast<int>(i));
      child.end();
    }
    if (interrupted_ != 0 && !killed.empty())
      say(fmt::format("killed before they could write a checkpoint of this step: {}\n",
                      list_ranks(killed)));
  }

  void wait_for_news() {
    std::vector<pollfd> news{{signals_.descriptor(), POLLIN, 0}};
    for (const auto& output : outputs_)
      if (output->reading_end() >= 0) news.push_back({output->reading_end(), POLLIN, 0});
    poll(news.data(), news.size(), kPollMilliseconds);
  }

  int report() {
    if (interrupted_ == 0) return supervisor_.report();
    // If the signal has killed ranks, the errors of the others are a consequence.
    const bool tore = std::ranges::any_of(ranks_.children, [&](const auto& child) {
      return WIFSIGNALED(child->wait_status()) && WTERMSIG(child->wait_status()) == interrupted_;
    });
    if (!tore && (!ranks_.failed.empty() || ranks_.ended_others)) supervisor_.report();
    return 128 + (broken_output_ ? SIGPIPE : interrupted_);
  }

  SignalQueue signals_;  // before any thread
  int world_size_;
  int local_size_;
  StartedRanks ranks_;
  Supervisor supervisor_;
  PrefixOutput::Errors errors_;
  std::vector<std::shared_ptr<PrefixOutput>> outputs_;

  Clock::time_point next_look_ = Clock::now() + kBetweenLooks;
  bool ending_ = false;         // the ranks that still run are being ended
  int interrupted_ = 0;         // the signal
  bool broken_output_ = false;  // nobody reads the ranks' output
  int lost_output_ = 0;         // the error that has lost some of it, as on a full disk
  Clock::time_point tell_at_ = Clock::time_point::max();
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace

int launch_ranks(const LaunchOptions& options, int argc, const char* const* argv) {
  std::fflush(nullptr);  // this process's own output comes first
  return Launch(options, argc, argv).run();
}

}  // namespace lab
