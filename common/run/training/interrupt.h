// Interrupt: lets a run end in good order when the user presses Ctrl-C.
#pragma once

namespace lab {

/// While it lives, the first SIGINT (Ctrl-C) or SIGTERM is only noted, and the run decides when to
/// stop; a second one of the same kind ends the process at once. One object at a time.
///
/// In a process that computes with several threads there must be a SignalThread (run_main sees to
/// it): a thread of oneDNN must not be interrupted.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
  /// By convention 128 plus the number of the signal: 130 after Ctrl-C, also if it reached another
  /// rank only.
  int exit_code() const;
};

}  // namespace lab
