// What a rank did during one call, by its flight record: messages, collectives, passes. From rank
// program to verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "tests/grading/parcel.h"

namespace lab::grading {

struct Operation {
  OpKind kind = OpKind::kSend;
  std::string group;               // "world", "pipeline 1"
  int peer = -1;                   // world rank of the other side, or root; -1: none
  int tag = 0;                     // of a message; of a reduction: its ReduceOp
  int microbatch = -1;             // of a pass
  uint64_t bytes = 0;              // of the tensor
  int64_t id = 0;                  // in the order of posting
  int64_t begin_ns = 0;            // counted from the first
  int64_t end_ns = 0;              // a posted message ends when it has been waited for
  OpState state = OpState::kDone;  // another only in a call that never ends
  int64_t started_ns = 0;          // of a posted collective: when its turn had come,
  int64_t finished_ns = 0;         // when the network was done with it,
  int64_t waiting_ns = 0;          // and, of anything, when the rank began to wait for it
};

/// All operations of a call, in the order in which they were posted.
std::vector<Operation> operations_of(const Parcel& result);

/// "all_reduce of 400 bytes, 2 x send of 12 bytes to 2 (tag 0)". Of a long list only what is next
/// to number `at`, with which something is wrong, and how many others there are.
std::string in_words(const std::vector<Operation>& operations, size_t at = 0);

/// For rank programs: what was posted after operation `last_id`. Throws Error if a message is
/// pending, in another group than kAbandoned: nobody has waited for it.
void note_operations(const FlightRecorder& recorder, uint64_t last_id, Parcel& result);
uint64_t last_operation(const FlightRecorder& recorder);

/// The same of a call that never ends, with what is pending, for the part kUnfinishedCall of its
/// rank's result. "returned": whether this rank has come to the end of the call.
Parcel unfinished_operations(const RankSnapshot& snapshot, const std::vector<OpRecord>& history);
inline constexpr const char* kUnfinishedCall = "unfinished";

/// The group in which ranks meet between calls; its operations are not noted.
inline constexpr const char* kBetweenCalls = "the test after this call";
/// The group of messages that a scenario itself leaves behind.
inline constexpr const char* kAbandoned = "a step that was abandoned";

}  // namespace lab::grading
