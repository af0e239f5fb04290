#include "common/comm/diagnosis/describe.h"

#include <string.h>

#include "common/error.h"
#include "common/format.h"

namespace lab {
namespace {

std::string in_group(const OpRecord& op, const RankSnapshot& rank) {
  return op.group == 0 ? "" : fmt::format(" in {}", group_name(op.group, rank));
}

bool has_root(OpKind kind) { return kind == OpKind::kBroadcast || kind == OpKind::kReduce; }

/// A barrier moves no numbers, and those of a split are not the caller's.
bool has_bytes(OpKind kind) {
  return kind < OpKind::kForward && kind != OpKind::kBarrier && kind != OpKind::kSplit;
}

std::string other_verb(const OpRecord& op) { return op.kind == OpKind::kSend ? "recv" : "send"; }

std::vector<int> ranks_with(const std::vector<Counterpart>& parts, Part part) {
  std::vector<int> ranks;
  for (const Counterpart& other : parts)
    if (other.part == part) ranks.push_back(other.rank);
  return ranks;
}

std::string explain_message(const std::vector<RankSnapshot>& job, const OpRecord& op,
                            const Counterpart& other) {
  const std::string verb = other_verb(op);
  switch (other.part) {
    case Part::kNotPosted:
      return fmt::format(
          "rank {} has not posted the {}{}", other.rank, verb,
          other.op == nullptr
              ? ""
              : ", but " + describe_briefly(*other.op, job[static_cast<size_t>(other.rank)]));
    case Part::kDiffers:
      return fmt::format("rank {} has posted the {} with {} bytes", other.rank, verb,
                         format_count(other.op->bytes));
    case Part::kUnderWay:
      return fmt::format("rank {} has posted the {}", other.rank, verb);
    case Part::kDone:
      break;
  }
  return fmt::format("rank {} is done with the {}", other.rank, verb);
}

std::string explain_collective(const std::vector<RankSnapshot>& job,
                               const std::vector<Counterpart>& parts) {
  const std::vector<int> absent = ranks_with(parts, Part::kNotPosted);
  for (const Counterpart& other : parts)
    if (other.part == Part::kDiffers)
      return fmt::format("rank {} calls {} instead", other.rank,
                         describe(*other.op, job[static_cast<size_t>(other.rank)]));
  if (absent.empty()) return "all ranks have entered it";
  return fmt::format("{} {} not entered it", list_ranks(absent),
                     absent.size() == 1 ? "has" : "have");
}

}  // namespace

std::string group_name(uint32_t id, const RankSnapshot& rank) {
  if (id == 0) return "the world";
  const GroupRecord* group = find_group(rank.groups, id);
  return group != nullptr && !group->name.empty() ? group->name : fmt::format("group {:08x}", id);
}

std::string list_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  std::string text = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string describe(const OpRecord& op, const RankSnapshot& rank) {
  std::vector<std::string> parts;
  if (is_message(op.kind)) {
    parts.push_back(fmt::format("{} {}", op.kind == OpKind::kSend ? "to" : "from", op.peer));
    parts.push_back(fmt::format("tag {}", op.tag));
  }
  if (has_bytes(op.kind)) parts.push_back(format_count(op.bytes) + " bytes");
  if (has_root(op.kind)) parts.push_back(fmt::format("root {}", op.peer));
  if (op.microbatch >= 0) parts.push_back(fmt::format("microbatch {}", op.microbatch));

  std::string text(op_name(op.kind));
  if (is_collective(op.kind)) text += fmt::format(" #{}", op.sequence);
  if (!parts.empty())
    text += fmt::format("{}({})", is_collective(op.kind) ? " " : "", fmt::join(parts, ", "));
  return text + in_group(op, rank);
}

std::string describe_briefly(const OpRecord& op, const RankSnapshot& rank) {
  if (is_message(op.kind))
    return fmt::format("{}(tag {}){}", op_name(op.kind), op.tag, in_group(op, rank));
  return fmt::format("{} #{}{}", op_name(op.kind), op.sequence, in_group(op, rank));
}

std::string describe_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  return fmt::format("killed (signal {}{}{})", signal, name != nullptr ? ": SIG" : "",
                     name != nullptr ? name : "");
}

std::string describe_fate(const RankSnapshot& rank) {
  const int r = rank.rank;
  switch (rank.fate) {
    case RankFate::kExited:
      if (rank.status < 0) return fmt::format("rank {} has ended", r);
      return fmt::format("rank {} exited with code {}", r, rank.status);
    case RankFate::kKilled:
      return fmt::format("rank {} was {}", r, describe_signal(rank.status));
    case RankFate::kStopped:
      return fmt::format("rank {} is stopped (SIGSTOP or Ctrl-Z)", r);
    case RankFate::kSilent:
      return rank.status > 0
                 ? fmt::format("rank {} has not been heard from for {} s", r, rank.status)
                 : fmt::format("rank {} has not been heard from for some time", r);
    case RankFate::kUnknown:
    case RankFate::kRunning:
      break;
  }
  return rank.left ? fmt::format("rank {} has left the job", r) : "";
}

std::string describe_wait(const std::vector<RankSnapshot>& job, const RankSnapshot& waiter) {
  const OpRecord& op = *waiter.waiting();
  std::string text = fmt::format("rank {} waits in {}", waiter.rank, describe(op, waiter));
  const double seconds = static_cast<double>(waiter.taken_ns - op.waiting_ns) * 1e-9;
  if (seconds >= 0.05) text += fmt::format(" for {:.1f} s", seconds);

  const OpRecord* first = holding_up(waiter);
  if (first != &op) text += ", queued after " + describe(*first, waiter);
  const std::vector<Counterpart> parts = counterparts(job, waiter);
  if (parts.empty()) return text;
  text += ": ";
  text += is_message(op.kind) ? explain_message(job, op, parts[0]) : explain_collective(job, parts);
  for (const Counterpart& other : parts) {
    const std::string fate = describe_fate(job[static_cast<size_t>(other.rank)]);
    if (other.part != Part::kDone && !fate.empty()) text += "; " + fate;
  }
  return text;
}

}  // namespace lab
