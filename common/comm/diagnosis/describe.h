// Sentences about ranks and their operations, for diagnoses.
#pragma once

#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/diagnosis/wait_graph.h"

namespace lab {

/// "recv(tag 3)", "all_reduce #41", with the group as in `describe`.
std::string describe_briefly(const OpRecord& op, const RankSnapshot& rank);

/// "the world", "pipeline 1".
std::string group_name(uint32_t id, const RankSnapshot& rank);

/// "rank 2", "ranks 0 and 1", "ranks 0, 1 and 2".
std::string list_ranks(const std::vector<int>& ranks);

/// "killed (signal 9: SIGKILL)".
std::string describe_signal(int signal);

/// "rank 2 was killed (signal 9: SIGKILL)"; empty if the rank is fine as far as is known.
std::string describe_fate(const RankSnapshot& rank);

/// "rank 1 waits in send(to 2, tag 1, 16 bytes) for 1.2 s: rank 2 has not posted the recv".
std::string describe_wait(const std::vector<RankSnapshot>& job, const RankSnapshot& waiter);

}  // namespace lab
