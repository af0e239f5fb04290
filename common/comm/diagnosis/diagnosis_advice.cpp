#include "common/comm/diagnosis/diagnosis_advice.h"

#include <algorithm>
#include <csignal>

#include "common/comm/diagnosis/describe.h"
#include "common/error.h"
#include "common/format.h"

namespace lab {
namespace {

std::string reduction_name(int number) {
  switch (static_cast<ReduceOp>(number)) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return fmt::format("reduction {}", number);
}

/// "broadcast (512 bytes)"; root and reduction only where those of `other` differ.
std::string call_text(const OpRecord& op, const OpRecord& other) {
  std::string text(op_name(op.kind));
  if (op.kind == OpKind::kBarrier || op.kind == OpKind::kSplit) return text;
  text += fmt::format(" ({} bytes", format_count(op.bytes));
  if (op.kind == other.kind && op.peer != other.peer) text += fmt::format(", root {}", op.peer);
  if (op.kind == other.kind && op.tag != other.tag) text += ", " + reduction_name(op.tag);
  return text + ")";
}

}  // namespace

std::string mismatch_headline(const RankSnapshot& a, const OpRecord& a_op, const RankSnapshot& b,
                              const OpRecord& b_op) {
  if (is_message(a_op.kind)) {
    const bool a_sends = a_op.kind == OpKind::kSend;
    return fmt::format("size mismatch: rank {} sends {} bytes, rank {} expects {} (tag {}{})",
                       a_sends ? a.rank : b.rank, format_count(a_sends ? a_op.bytes : b_op.bytes),
                       a_sends ? b.rank : a.rank, format_count(a_sends ? b_op.bytes : a_op.bytes),
                       a_op.tag, a_op.group == 0 ? "" : ", " + group_name(a_op.group, a));
  }
  if (a.rank > b.rank) return mismatch_headline(b, b_op, a, a_op);
  return fmt::format("collective #{} of {}: rank {} calls {}, rank {} calls {}", a_op.sequence,
                     group_name(a_op.group, a), a.rank, call_text(a_op, b_op), b.rank,
                     call_text(b_op, a_op));
}

std::string advice_about_mismatch(const OpRecord& op) {
  return is_message(op.kind)
             ? "the tensors of both sides must have the same number of elements"
             : "all ranks of a group must call the same collectives in the same order, with the "
               "same root, reduction and number of elements; a rank that has returned early is in "
               "a later call already, perhaps one of the program's own";
}

std::string advice_about_streams(const OpRecord& a, const OpRecord& b) {
  return a.group != b.group ? "a message meets only a recv that is posted in the same group"
                            : "a message meets only a recv with the same tag, and a blocking send "
                              "waits for it: check tags and order on both sides";
}

std::string advice_about_circle(const std::vector<OpKind>& kinds, bool sends_are_posted) {
  const auto all = [&](OpKind kind) {
    return std::ranges::all_of(kinds, [kind](OpKind other) { return other == kind; });
  };
  if (all(OpKind::kSend))
    return "blocking sends wait for the matching recv: let one side receive first, or post with "
           "isend/irecv and wait afterwards";
  if (all(OpKind::kRecv) && sends_are_posted)
    return "sends are posted, but not those that are waited for: check to which rank, with which "
           "tag and in which group each one goes";
  if (all(OpKind::kRecv))
    return "nobody sends before it has received: the rank where the data starts must not receive "
           "first; ranks that have their data already can send it with isend before they wait";
  if (std::ranges::all_of(kinds, is_message))
    return "messages are waited for in an impossible order: change it on one rank, or post with "
           "isend/irecv and wait afterwards";
  return "a collective returns when all ranks of its group have entered it: bring collectives and "
         "messages into the same order on all ranks";
}

std::string advice_about(const RankSnapshot& gone) {
  switch (gone.fate) {
    case RankFate::kStopped:
      return gone.pid > 0
                 ? fmt::format("let it go on (fg, or kill -CONT {}), or end the job", gone.pid)
                 : "let it go on (fg, or kill -CONT), or end the job";
    case RankFate::kSilent:
      return fmt::format("check the machine of rank {} and its network", gone.rank);
    case RankFate::kKilled:
      if (gone.status == SIGKILL)
        return "SIGKILL comes from a person, or from a system that ran out of memory (see dmesg)";
      [[fallthrough]];
    case RankFate::kExited:
      if (gone.status == 0) break;
      return fmt::format("look at what rank {} printed last: the others only wait for it",
                         gone.rank);
    case RankFate::kUnknown:
    case RankFate::kRunning:
      break;
  }
  return fmt::format("rank {} ended too early: all ranks must take the same number of steps",
                     gone.rank);
}

}  // namespace lab
