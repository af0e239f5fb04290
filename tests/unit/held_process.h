// HeldProcess: a process that is paused as at a breakpoint of a debugger.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lab {

/// Holds all threads of a child while it lives; of a process that starts no threads meanwhile.
class HeldProcess {
 public:
  explicit HeldProcess(pid_t pid) {
    const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& entry : std::filesystem::directory_iterator(threads)) {
      const pid_t thread = std::stoi(entry.path().filename());
      possible_ = possible_ && ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0;
      if (possible_) threads_.push_back(thread);
    }
    for (const pid_t thread : threads_) {
      ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
      waitpid(thread, nullptr, __WALL);
    }
  }
  ~HeldProcess() {
    for (const pid_t thread : threads_) ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
  }
  HeldProcess(const HeldProcess&) = delete;
  HeldProcess& operator=(const HeldProcess&) = delete;

  /// False if the system does not allow it.
  bool possible() const { return possible_; }

 private:
  bool possible_ = true;
  std::vector<pid_t> threads_;
};

}  // namespace lab
