// What the training programs of several ranks do before their training loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "common/data/batch.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/config.h"
#include "common/run/launch/job.h"
#include "common/run/options/run_plan.h"

namespace lab {

/// choose_device for this rank. Throws Error on every rank unless all compute on the same kind of
/// device: a far slower one would only keep the others waiting.
///
/// On GPUs, plan.comm says how tensors travel: "gloo": through host memory, ranks may share a
/// GPU; "nccl": straight from GPU to GPU, one per rank; "auto": NCCL if possible.
Device agree_on_device(Job& job, const RunPlan& plan);

/// All ranks call it, once in a job. `work` runs on the first rank of each machine, with all cores
/// that the ranks may use together; the others sleep until every machine is done. `work` calls its
/// argument repeatedly to show progress, and may take as long as it likes: waiting ranks throw
/// Error only if no machine shows progress for `patience` (0: the job's deadline for each wait).
/// `what`: what the work is, for messages; `threads`: as plan.threads.
void work_on_first_ranks(Job& job, const std::string& what, int threads,
                         const std::function<void(const std::function<void()>& going_on)>& work,
                         std::chrono::milliseconds patience = {});

/// What every rank opens before its training loop, after all have agreed on options and device.
struct Setup {
  Setup(Job& job, const RunPlan& plan);

  /// Sequences to train on.
  int64_t sequences() const { return data.sequence_count(Split::kTrain, model.context); }

  Device device;
  Tokenizer tokenizer;
  TokenDataset data;
  LlamaConfig model;  // with the tokenizer's vocabulary
  uint64_t seed;
};

/// The number of targets in all microbatches of a rank.
int64_t target_count(std::span<const TokenBatch> microbatches);

}  // namespace lab
