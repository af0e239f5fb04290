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

  bool requested() const;
  /// By convention 128 plus the number of the signal: 130 after Ctrl-C, even if only another rank
  /// received it.
  int exit_code() const;
};

}  // namespace lab
