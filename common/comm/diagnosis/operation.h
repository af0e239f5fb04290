// The operations of ranks: messages, collectives and computations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lab {

/// How reductions combine the elements of all ranks.
enum class ReduceOp { kSum, kMin, kMax };

/// The largest world: group members are the bits of one number.
inline constexpr int kMaxWorldSize = 64;

/// What a flight record notes: messages, collectives and computations.
enum class OpKind : uint8_t {
  kSend,
  kRecv,
  kBarrier,
  kBroadcast,
  kReduce,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kSplit,
  kForward,
  kBackward,
  kLoss,
  kOptimizer,
  kAdd,
};
inline constexpr size_t kOpKinds = 14;

/// "send", "all_reduce", ... as the verbs of ProcessGroup are called.
std::string_view op_name(OpKind kind);
inline bool is_message(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }
inline bool is_collective(OpKind kind) {
  return kind >= OpKind::kBarrier && kind <= OpKind::kSplit;
}

}  // namespace lab
