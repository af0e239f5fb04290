// What a training step calls on each rank, on record; it refuses what no stage can answer.
#pragma once

#include "common/tensor/error.h"
#include "tests/labs/02_gradient_allreduce/step_log.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab04 {

using lab02::log_event;
using lab02::RecordingOptimizer;
using lab02::step_log;

/// The loss of a rank.
struct GuardedLoss {
  int rank = 0;
  bool has_head = false;

  double operator()(const lab::Tensor& logits, const lab::TokenBatch& batch,
                    int64_t total_targets) const {
    lab::require(has_head,
                 "loss was called on rank {}, which has no logits: only the last stage has the "
                 "head, and the targets are its business alone",
                 rank);
    lab::require(logits.defined() && logits.shape() == lab::Shape{batch.batch, batch.length,
                                                                  pipeline_tests::kVocab},
                 "loss was called on rank {} with a tensor that is not [B, T, V]: give it what "
                 "forward returned",
                 rank);
    return lab02::recording_loss(logits, batch, total_targets);
  }
};

}  // namespace lab04
