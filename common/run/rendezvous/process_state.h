// What the kernel says about another process on this machine.
#pragma once

#include <cstdint>
#include <string>

namespace lab {

enum class ProcessState {
  kRunning,  // or sleeping
  kStopped,  // SIGSTOP, Ctrl-Z
  kTraced,   // by a debugger: its job must not be ended
  kGone,     // has ended, even if nobody has reaped it yet
};

ProcessState process_state(int64_t pid);

/// Two processes with the same text see each other under their process numbers. The text differs on
/// other machines and in other containers of this one.
std::string process_space();

/// The name of this machine, for messages.
std::string host_name();

}  // namespace lab
