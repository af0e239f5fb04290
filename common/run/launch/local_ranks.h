// What the ranks on this machine are doing: for the launcher and for the test harness.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"
#include "common/run/launch/child_process.h"

namespace lab {

/// One look at every rank: its flight record in the folder `records`, and the state of its process
/// (running, stopped, exited, killed). `children`: one per rank. A rank that has not begun its
/// record yet is kUnknown as long as it runs.
std::vector<RankSnapshot> look_at_ranks(const std::filesystem::path& records,
                                        const std::vector<std::unique_ptr<ChildProcess>>& children);

}  // namespace lab
