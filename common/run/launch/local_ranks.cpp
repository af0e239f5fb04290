// Combines flight records with what the system knows about the processes.
#include "common/run/launch/local_ranks.h"

#include <sys/wait.h>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/error.h"
#include "common/run/rendezvous/process_state.h"

namespace lab {
namespace {

void tell_fate(ChildProcess& child, bool has_record, RankSnapshot& rank) {
  if (child.running()) {
    if (process_state(child.pid()) == ProcessState::kStopped)
      rank.fate = RankFate::kStopped;
    else
      rank.fate = has_record ? RankFate::kRunning : RankFate::kUnknown;
    return;
  }
  const int status = child.wait_status();
  rank.fate = WIFSIGNALED(status) ? RankFate::kKilled : RankFate::kExited;
  rank.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::vector<RankSnapshot> look_at_ranks(
    const std::filesystem::path& records,
    const std::vector<std::unique_ptr<ChildProcess>>& children) {
  std::vector<RankSnapshot> ranks(children.size());
  for (size_t r = 0; r < children.size(); ++r) {
    const int rank = static_cast<int>(r);
    bool has_record = true;
    try {
      ranks[r] = read_flight_record(flight_record_path(records, rank)).snapshot;
    } catch (const Error&) {
      has_record = false;  // not there yet, or just being made
    }
    ranks[r].rank = rank;
    tell_fate(*children[r], has_record, ranks[r]);
  }
  return ranks;
}

}  // namespace lab
