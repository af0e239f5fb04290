// RankSnapshot: what a rank waits for.
#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

const OpRecord* RankSnapshot::waiting() const {
  // A wait that broke off stays in the list; the rank is held up by the one that began last.
  const OpRecord* latest = nullptr;
  for (const OpRecord& op : pending)
    if (op.state == OpState::kWaiting && (latest == nullptr || op.waiting_ns >= latest->waiting_ns))
      latest = &op;
  return latest;
}

}  // namespace lab
