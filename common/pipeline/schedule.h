// Schedule: what every stage of a pipeline does, and in which order. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lab {

enum class ActionKind : uint8_t {
  kForward,
  kBackward,
  kRecvActivation,  // what a forward reads, from the previous stage
  kSendActivation,  // what a forward has made, to the next stage
  kRecvGradient,    // what a backward reads, from the next stage
  kSendGradient,    // what a backward has made, to the previous stage
};

inline bool is_message(ActionKind kind) { return kind >= ActionKind::kRecvActivation; }
inline bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

/// One thing that a stage does with one microbatch.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int microbatch = 0;
  /// Of a message; false for a pass. False: the stage waits here until the message is done. True:
  /// it is posted here, and the stage goes on; a recv is waited for where its data is read, a send
  /// at the end of the list.
  bool posted = false;

  bool operator==(const Action&) const = default;
};

/// What one stage does, in this order.
using ActionList = std::vector<Action>;

/// A schedule in the narrow sense has forwards and backwards only: which pass comes after which.
/// With its messages it is a *program*, and only a program can deadlock. This type holds either.
/// Stages count from 0, where the tokens go in, and microbatches from 0.
struct Schedule {
  int microbatches = 0;
  std::vector<ActionList> stages;

  int stage_count() const { return static_cast<int>(stages.size()); }
  bool has_messages() const;

  bool operator==(const Schedule&) const = default;
};

/// "F3", "B3"; "<F3" receives what F3 reads, ">F3" sends what F3 has made, "<B3" and ">B3"
/// likewise; a posted message ends in "*".
std::string to_string(const Action& action);

/// A line per stage, as in a schedule file:
///
///     # comment
///     stages 2 microbatches 2
///     0: F0 >F0 F1 >F1* <B0 B0 <B1 B1
///     1: <F0 F0 B0 >B0 <F1 F1 B1 >B1
std::string to_text(const Schedule& schedule);

/// The inverse. Throws Error naming `origin` (a file) and line: unknown word, stage missing or
/// given twice, microbatch out of range. Whether the actions make sense together is for `validate`.
Schedule schedule_from_text(const std::string& text, const std::string& origin);

/// Reads a schedule file, at most 16 MiB. Throws Error: unreadable, or as schedule_from_text.
Schedule read_schedule(const std::string& path);

}  // namespace lab
