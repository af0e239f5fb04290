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

/// Two processes that get the same text see each other's process ids. The text differs between
/// machines, and between the containers of one machine.
std::string process_space();

/// The name of this machine, for messages.
std::string host_name();

}  // namespace lab
