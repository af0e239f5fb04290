// Programs under test: start, watch, and make sure that nothing is left of them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/run/launch/child_process.h"
#include "tests/unit/temp_folder.h"

namespace lab {

/// A started program. Fails the test if it does not do in time what is waited for.
class ProgramRun {
 public:
  explicit ProgramRun(const std::vector<std::string>& command,
                      const std::map<std::string, std::string>& environment = {})
      : child_(command, environment) {}

  /// Until `text` is in its output.
  void wait_for(const std::string& text, double deadline_s = 20) {
    const bool came = poll_until([&] { return contains(text) || !child_.running(); }, deadline_s);
    EXPECT_TRUE(came && contains(text)) << "no '" << text << "' in:\n" << output();
  }

  /// Until it has ended. Returns its exit code, 128 + signal for a signal.
  int wait(double deadline_s = 20) {
    EXPECT_TRUE(poll_until([&] { return !child_.running(); }, deadline_s))
        << "still running; its output:\n"
        << output();
    child_.end();
    const int status = child_.wait_status();
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  pid_t pid() const { return child_.pid(); }
  void send_signal(int signal) { kill(pid(), signal); }
  const std::string& output() const { return child_.output(); }
  bool contains(const std::string& text) const {
    return child_.output().find(text) != std::string::npos;
  }

 private:
  template <typename Condition>
  bool poll_until(const Condition& condition, double deadline_s) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(deadline_s);
    while (true) {
      child_.read_output();
      if (condition()) return true;
      if (Clock::now() > deadline) return false;
      pollfd news{child_.output_descriptor(), POLLIN, 0};
      poll(&news, 1, 10);
    }
  }

  using Clock = std::chrono::steady_clock;
  ChildProcess child_;
};

/// How often a text occurs.
inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// A temporary folder for all that programs create meanwhile, and a lock that all ranks hold while
/// they live.
class CleanPlace {
 public:
  CleanPlace() { std::filesystem::create_directory(temp()); }

  /// For the environment of a program.
  std::map<std::string, std::string> environment() const { return {{"TMPDIR", temp()}}; }
  std::string lock() const { return folder_.path() / "lock"; }
  std::string temp() const { return folder_.path() / "temp"; }
  /// A fresh folder for a file store.
  std::string store() const { return folder_.path() / "store"; }

  /// To be called when all programs should be gone.
  void expect_nothing_left() const {
    EXPECT_TRUE(std::filesystem::is_empty(temp())) << "a file is left in the temporary folder";
    const int descriptor = open(lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(flock(descriptor, LOCK_EX | LOCK_NB), 0) << "a rank still runs";
    close(descriptor);
  }

 private:
  TempFolder folder_;
};

}  // namespace lab
