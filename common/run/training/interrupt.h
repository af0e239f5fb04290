// Interrupt: lets a run end in good order when the user presses Ctrl-C.
#pragma once

namespace lab {

/// During its lifetime, the first SIGINT (Ctrl-C) or SIGTERM is only recorded, and the run decides
/// when to stop; a second one of the same kind ends the process at once. One object at a time.
///
/// A process that computes with several threads needs a SignalThread (run_main makes one): a thread
/// of oneDNN must not be interrupted.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// The signal that was received; 0: none yet. By convention, the exit code is then 128 more.
  int signal() const;
};

}  // namespace lab
