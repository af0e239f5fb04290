// fork and exec, a process group, a pipe.
#include "common/run/launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/error.h"
#include "common/run/watch/judge.h"

namespace lab {
namespace {

constexpr size_t kKeptOutput = 16 << 10;

// Between fork and exec: system calls only, no memory allocation.
[[noreturn]] void become(char* const* arguments, char* const* environment, pid_t parent,
                         ChildProcess::Outputs outputs, int report) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none,
              nullptr);  // signals blocked here must not stay blocked in the child
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(outputs.out, STDOUT_FILENO);
    dup2(outputs.error, STDERR_FILENO);
    execve(arguments[0], arguments, environment);
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(report, &error, sizeof error);
  }
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!extra.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : extra) result.push_back(name + "=" + value);
  return result;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::map<std::string, std::string>& environment, Outputs outputs) {
  start(command, environment, outputs);
}

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::map<std::string, std::string>& environment) {
  auto [reading, writing] = make_pipe();
  output_ = std::move(reading);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  start(command, environment, {writing.get(), writing.get()});
}

void ChildProcess::start(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment, Outputs outputs) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = merged_environment(environment);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);

  auto [report, reporting] = make_pipe();  // closed by a successful exec, else contains its error
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0)
    become(argument_pointers.data(), variable_pointers.data(), parent, outputs, reporting.get());
  int error = pid_ < 0 ? errno : 0;
  reporting = Descriptor();
  if (pid_ > 0) {
    setpgid(pid_, pid_);  // the child does the same; the first one wins
    if (read(report.get(), &error, sizeof error) > 0) waitpid(pid_, nullptr, 0);
  }
  require(error == 0, "cannot start {}: {}", command[0], std::strerror(error));
  running_ = true;
}

void ChildProcess::read_output() {
  read_available(output_, text_);
  if (text_.size() > kKeptOutput) text_.erase(0, text_.size() - kKeptOutput);
}

bool ChildProcess::running() {
  if (!running_) return false;
  siginfo_t info = {};
  // WNOWAIT: its number stays taken until it is reaped, so the group can be addressed safely.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid_)
    reap();
  return running_;
}

void ChildProcess::send_signal(int signal) {
  if (running_) kill(-pid_, signal);
}

void ChildProcess::end() {
  if (running_) reap();
}

void ChildProcess::reap() {
  kill(-pid_, SIGKILL);
  rusage usage = {};
  while (wait4(pid_, &wait_status_, 0, &usage) < 0 && errno == EINTR) {
  }
  cpu_seconds_ = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  running_ = false;
  read_output();
  output_ = Descriptor();
}

Fate fate_of_child(ChildProcess& child) {
  return child.running() ? fate_of_process(child.pid()) : fate_of_ended(child.wait_status());
}

}  // namespace lab
