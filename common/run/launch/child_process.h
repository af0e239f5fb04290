// ChildProcess: a program that cannot outlive the one that started it.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "common/io/descriptor.h"

namespace lab {

struct Fate;

/// Runs a program in its own process group, so that whatever it starts can be ended with it. It is
/// killed by `end`, by the destructor, and by the kernel if this process dies. Standard output and
/// error are captured together (only the end of a long output), or go where the caller says.
class ChildProcess {
 public:
  /// `environment`: added to this process's environment. Throws Error if the program cannot be
  /// started.
  ChildProcess(const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment);

  /// The same, with standard output and error going to descriptors that remain the caller's.
  struct Outputs {
    int out = -1;
    int error = -1;
  };
  ChildProcess(const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment, Outputs outputs);
  ~ChildProcess() { end(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// To poll for captured output; -1 once all of it has arrived.
  int output_descriptor() const { return output_.get(); }
  /// Reads the output that is there, without waiting. Call it often: a program whose output nobody
  /// reads is blocked.
  void read_output();
  const std::string& output() const { return text_; }

  /// False once it has ended; then its group has been ended as well.
  bool running();
  /// Sends any signal to the whole group, if it is still running.
  void send_signal(int signal);
  /// Kills the whole group if it is still running.
  void end();

  /// As from waitpid; valid when it no longer runs.
  int wait_status() const { return wait_status_; }
  /// Processor time it used; valid when it no longer runs.
  double cpu_seconds() const { return cpu_seconds_; }

 private:
  void start(const std::vector<std::string>& command,
             const std::map<std::string, std::string>& environment, Outputs outputs);
  void reap();

  pid_t pid_ = -1;
  bool running_ = false;
  Descriptor output_;
  std::string text_;
  int wait_status_ = 0;
  double cpu_seconds_ = 0;
};

/// What became of it: running, stopped, exited, killed (common/comm/diagnosis/rank_snapshot.h).
Fate fate_of_child(ChildProcess& child);

}  // namespace lab
