// Counting messages and bytes of every rank.
#include "tests/labs/04_pipeline_1f1b/verdict_messages.h"

#include <fmt/format.h>

#include <array>

#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab04 {
namespace {

using lab::OpKind;
using lab::Traffic;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::traffic_of;

constexpr std::array kCollectives = {OpKind::kBarrier,   OpKind::kBroadcast, OpKind::kReduce,
                                     OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter,
                                     OpKind::kSplit};

void expect_no_collectives(const Parcel& result, size_t rank) {
  for (OpKind kind : kCollectives)
    if (const Traffic other = traffic_of(result, kind); other.operations > 0)
      stop(
          fmt::format("the numbers are right, but rank {} also calls {} ({} times, {} bytes): "
                      "messages between neighbours are all that is needed",
                      rank, lab::op_name(kind), other.operations, other.bytes));
}

void expect_count(size_t rank, OpKind kind, const Traffic& got, const Traffic& right,
                  const std::string& which) {
  const bool sends = kind == OpKind::kSend;
  if (got.operations != right.operations)
    stop(fmt::format("the numbers are right, but rank {} {} {} messages, it should be {}: {}", rank,
                     sends ? "sends" : "receives", got.operations, right.operations, which));
  if (got.bytes != right.bytes)
    stop(fmt::format("the numbers are right, but rank {} {} {} bytes, it should be {}: {}", rank,
                     sends ? "sends" : "receives", got.bytes, right.bytes, which));
}

/// How many ways (forward and backward) end or begin at a rank.
struct Neighbours {
  bool before = false;
  bool behind = false;
};

Neighbours neighbours(size_t rank, size_t ranks) {
  return {.before = rank > 0, .behind = rank + 1 < ranks};
}

}  // namespace

uint64_t hidden_bytes(int64_t batch, int64_t length) {
  return static_cast<uint64_t>(batch * length * pipeline_tests::kDim) * sizeof(float);
}

void expect_messages(const std::vector<Parcel>& results, Way way, uint64_t passes,
                     uint64_t pass_bytes) {
  const bool forward = way == Way::kForward;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const auto [before, behind] = neighbours(rank, results.size());
    const bool sends = forward ? behind : before;
    const bool receives = forward ? before : behind;
    const Traffic sent = traffic_of(results[rank], OpKind::kSend);
    if (!sends && sent.operations > 0)
      stop(forward ? fmt::format("rank {}, the last stage, sends its output on: no stage is behind "
                                 "it, and the logits stay where they are",
                                 rank)
                   : fmt::format("rank {}, the first stage, sends a gradient on: no stage is "
                                 "before it",
                                 rank));
    const std::string which = forward ? "one a pass, the hidden states, to the stage behind"
                                      : "one a pass, the gradient of them, to the stage before";
    const Traffic one_each{.operations = passes, .bytes = pass_bytes};
    expect_no_collectives(results[rank], rank);
    expect_count(rank, OpKind::kSend, sent, sends ? one_each : Traffic{}, which);
    expect_count(rank, OpKind::kRecv, traffic_of(results[rank], OpKind::kRecv),
                 receives ? one_each : Traffic{}, which);
  }
}

void expect_step_messages(const std::vector<Parcel>& results, uint64_t steps, uint64_t way_bytes,
                          bool clipped) {
  constexpr uint64_t kClippingBytes = 64;  // lab::clip_gradients takes 16
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const auto [before, behind] = neighbours(rank, results.size());
    const uint64_t ways = (before ? 1 : 0) + (behind ? 1 : 0);
    const Traffic right{.operations = ways * steps, .bytes = ways * way_bytes};
    if (!clipped) {
      const std::string which =
          "in each step, the hidden states to the stage behind and the gradient of them to the "
          "stage before";
      expect_no_collectives(results[rank], rank);
      expect_count(rank, OpKind::kSend, traffic_of(results[rank], OpKind::kSend), right, which);
      expect_count(rank, OpKind::kRecv, traffic_of(results[rank], OpKind::kRecv), right, which);
      continue;
    }
    uint64_t bytes = traffic_of(results[rank], OpKind::kSend).bytes;
    for (OpKind kind : kCollectives) bytes += traffic_of(results[rank], kind).bytes;
    if (bytes > right.bytes + kClippingBytes * steps)
      stop(
          fmt::format("the numbers are right, but rank {} puts {} bytes into messages in {} "
                      "steps: hidden states and their gradients are {}, and clipping needs one "
                      "number of each stage",
                      rank, bytes, steps, right.bytes));
  }
}

}  // namespace lab04
