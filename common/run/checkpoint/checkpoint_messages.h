// The messages of ranks that save a checkpoint together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/comm/process_group.h"

namespace lab {

/// Rank 0 calls `action`; every rank returns its result, or throws an Error with the message of its
/// exception. All ranks call it.
std::string done_by_rank_0(ProcessGroup& group, const std::function<std::string()>& action);

/// The texts of all ranks on rank 0, in the order of ranks; nothing on the others. All ranks call
/// it.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);

}  // namespace lab
