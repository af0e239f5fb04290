// RankSnapshot: names of operations, and what a rank waits for.
#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

std::string_view op_name(OpKind kind) {
  static constexpr std::array<std::string_view, kOpKinds> kNames{
      "send",           "recv",  "barrier", "broadcast", "reduce", "all_reduce", "all_gather",
      "reduce_scatter", "split", "forward", "backward",  "loss",   "optimizer",  "add"};
  return kNames.at(static_cast<size_t>(kind));
}

const OpRecord* RankSnapshot::waiting() const {
  // A wait that broke off stays in the list; the rank is held up by the one that began last.
  const OpRecord* latest = nullptr;
  for (const OpRecord& op : pending)
    if (op.state == OpState::kWaiting && (latest == nullptr || op.waiting_ns >= latest->waiting_ns))
      latest = &op;
  return latest;
}

}  // namespace lab
