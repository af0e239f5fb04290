// Lab 09 · weights, gradients and the optimizer's state in shards. This is the contract; you write
// sharded.cpp.
//
// `stage` is a stage of ZeRO here, not of a pipeline. It says what a rank keeps of the model
// besides its shard: in stage 1 all weights and all gradients, in stage 2 all weights, and in stage
// 3 (FSDP) nothing. The model consists of parts: the embedding, each layer, norm with head
// (LlamaStage::part_count). Every part is cut into equal shards, one for each rank. All ranks call
// these functions together, except for `padded`, `owned` and `pieces_of`, and take part in all of
// their messages. No function keeps anything between calls except what is in Sharded, and none
// makes a copy of a tensor unless its contract allows it. New tensors are on `model.device()`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/memory_account.h"
#include "common/tensor/tensor.h"

namespace lab09 {

/// Elements [first, last).
struct Range {
  int64_t first = 0;
  int64_t last = 0;

  int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};

/// Task 1 · The length to which a part of `size` elements is padded, so that `ranks` ranks can have
/// equal shards of it: the smallest multiple of `ranks` that is at least `size`. `size` may be 0.
int64_t padded(int64_t size, int ranks);

/// Task 1 · The shard of `rank`: its elements of the padded part. Shards are equal, and follow each
/// other in the order of the ranks. The last ones may contain padding.
Range owned(int64_t size, int rank, int ranks);

/// What a rank holds of one part of the model. Tensors are flat. Padding is 0, and stays 0 because
/// its gradient is 0.
struct Part {
  int64_t size = 0;             // elements, without padding
  lab::Tensor values = {};      // all of it, padded; stage 3: from its all_gather to its release
  lab::Tensor gradient = {};    // all of it, padded; stages 2 and 3: only during its backward pass
  lab::Tensor own_values = {};  // this rank's shard; stages 1 and 2: a view of `values`
  lab::Tensor own_gradient = {};  // this rank's shard; stage 1: a view of `gradient`
  std::unique_ptr<lab::Optimizer> optimizer = {};  // for the shard
  std::optional<lab::Work> gathering = {};  // stage 3: the all_gather into `values`, under way
};

/// A model in shards.
struct Sharded {
  lab::LlamaStage& model;  // with WeightMemory::kBound: computes with what is bound
  lab::ProcessGroup& world;
  int stage = 1;  // 1, 2 or 3
  std::vector<Part> parts = {};
};

/// Task 2 · Sums a part's gradient over all ranks and gives each rank its own shard of the sum, by
/// one reduce_scatter (even if there is only one rank).
///
/// On entry `gradient` holds what this rank has computed. In stage 1 `own_gradient` holds the sum
/// afterwards. In stages 2 and 3 the sum is added to `own_gradient`: that holds what earlier
/// microbatches have left there. `gradient` may be overwritten. It can be done in place
/// (ProcessGroup::reduce_scatter); a copy of a shard is allowed, one of the part is not.
void reduce_gradient(Sharded& sharded, size_t part);

/// Task 2 · Every rank updates its shards: one step of each part's optimizer, with own_values and
/// own_gradient. In stages 1 and 2 all ranks also get the new weights of all parts, by one
/// all_gather for each part, in place (also if there is only one rank): right after the step of
/// that part, or after the steps of all parts. In stage 3 nothing is sent.
void update(Sharded& sharded, float learning_rate);

/// Task 3 · Stages 2 and 3, before the backward pass of a part: makes `gradient`, padded and 0, and
/// binds it to the model.
void open_gradient(Sharded& sharded, size_t part);
/// Task 3 · ... and after it: the gradient is reduced to its owners, released by the model, and
/// freed: `gradient` is undefined again.
void close_gradient(Sharded& sharded, size_t part);

/// Task 4 · Stage 3, before a pass computes with a part: on return `values` holds the weights of
/// part `use.part` from all ranks, bound to the model, and the all_gather of part `use.next` is
/// under way, if there is a next one.
///
/// If the all_gather of `use.part` is not under way yet, makes a new tensor `values` for that part,
/// posts the all_gather into it with all_gather_async, and keeps the Work in `gathering`. Then does
/// the same for `use.next`, if there is one. Then waits for `use.part` only, whose `gathering` is
/// empty afterwards. So at most one part is gathered ahead. Since every part that is opened is
/// closed before it is opened again, the last part of a forward pass, with which the backward pass
/// begins, is gathered twice.
void open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use);
/// Task 4 · ... and after it: the model releases the part, and `values` is undefined again.
void close_values(Sharded& sharded, size_t part);

/// Task 5 · Scales own_gradient of all parts by max_norm / norm if the norm exceeds `max_norm`,
/// which is positive and may be infinite; you need not check that. The norm is that of the
/// gradients of the whole model, of which each rank holds shards. Returns the norm before scaling,
/// with a relative error of at most 1e-5 and the same bits on every rank. If it is not finite, the
/// gradients may hold anything afterwards. In stage 1 the rest of `gradient` holds numbers that are
/// not summed: they neither count nor matter. One message of at most two numbers (lab::sum_over in
/// common/comm/agreement.h sends one); if there is only one rank, it may be left out.
double clip_gradients(Sharded& sharded, double max_norm);

/// The type of lab 01's causal_lm_loss (common/model/loss_function.h).
using lab::LossFunction;

/// Task 6 · One optimizer step of all ranks together: lab 02's, in shards.
///
/// The first message brings the exact number of targets of all ranks, in at most two numbers; with
/// one rank it may be left out. The loss is given that number as `total_targets`; then gradients
/// are parts of the mean over all targets, and their sum over ranks and microbatches is the mean.
/// The backward pass of a microbatch comes before the forward pass of the next one. The caller has
/// called `attach`, so the passes call your functions of tasks 3 and 4. Stage 1 reduces each part's
/// gradient once, after the last backward pass (or, without microbatches, at once),
/// from the first part to the last. Then come clipping, if `max_norm` is positive (0: none), and
/// the update. Gradients that are left over from the step before do not count, with or without
/// microbatches: before the first pass train_step sets own_gradient to 0, and in stage 1 all of
/// `gradient`.
///
/// `microbatches`: this rank's own, the same number on all ranks, since stages 2 and 3 send in
///     every pass; there may be none. The number of targets may differ; it may be 0, even on all
///     ranks: the loss is then given 0 (you may pass 1 instead), gradients are 0, and the update
///     takes place all the same.
/// Returns this rank's part of the loss: the sum of its cross-entropies divided by the targets of
/// all ranks. The parts of all ranks add up to the mean.
double train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                  const LossFunction& loss, float learning_rate, double max_norm);

/// Some elements of a shard that another number of ranks has saved.
struct Piece {
  int rank = 0;    // whose shard it was
  Range from;      // elements of that shard
  int64_t to = 0;  // where they begin in the new shard

  bool operator==(const Piece&) const = default;
};

/// Task 7 · A checkpoint holds each part as the shards of `saved_ranks` ranks. Where does the shard
/// of `rank`, one of `ranks`, come from?
///
/// `size`: of the part, without padding; it may be 0. The pieces are in the order of their
/// elements, at most one from each saved shard, none of them empty, and without padding. A shard
/// that is all padding has none.
std::vector<Piece> pieces_of(int64_t size, int rank, int ranks, int saved_ranks);

// --- Given

/// Makes the optimizer for a shard of this many elements.
using MakeOptimizer = std::function<std::unique_ptr<lab::Optimizer>(int64_t size)>;

/// A model in shards, with its initial values. In stage 3 it holds one whole part at a time.
inline Sharded make_sharded(lab::LlamaStage& model, lab::ProcessGroup& world, int stage,
                            const MakeOptimizer& make_optimizer) {
  Sharded sharded{.model = model, .world = world, .stage = stage};
  for (size_t p = 0; p < model.part_count(); ++p) {
    Part part{.size = model.part_size(p)};
    const int64_t all = padded(part.size, world.size());
    const Range own = owned(part.size, world.rank(), world.size());
    {
      const lab::MemoryOf kind(lab::MemoryKind::kWeights);
      part.values = lab::Tensor::zeros({all}, model.device());
      model.bind(p, part.values);
      model.initialise(p);
      part.own_values = part.values.rows(own.first, own.last);
      if (stage == 3) {
        part.own_values = part.own_values.clone();
        model.release(p);
        part.values = {};
      }
    }
    const lab::MemoryOf kind(lab::MemoryKind::kGradients);
    if (stage == 1) {
      part.gradient = lab::Tensor::zeros({all}, model.device());
      model.bind_gradient(p, part.gradient);
      part.own_gradient = part.gradient.rows(own.first, own.last);
    } else {
      part.own_gradient = lab::Tensor::zeros({own.size()}, model.device());
    }
    part.optimizer = make_optimizer(own.size());
    sharded.parts.push_back(std::move(part));
  }
  return sharded;
}

/// From now on, the model's passes call the functions of tasks 3 and 4, as the stage requires.
/// `sharded` must stay where it is.
inline void attach(Sharded& sharded) {
  using Pass = lab::LlamaStage::Pass;
  using PartUse = lab::LlamaStage::PartUse;
  const auto has_gradient = [&sharded](const PartUse& use) {
    return sharded.stage >= 2 && use.pass == Pass::kBackward;
  };
  sharded.model.watch_parts(
      [&sharded, has_gradient](const PartUse& use) {
        if (sharded.stage == 3) {
          const lab::MemoryOf kind(lab::MemoryKind::kWeights);
          open_values(sharded, use);
        }
        const lab::MemoryOf kind(lab::MemoryKind::kGradients);
        if (has_gradient(use)) open_gradient(sharded, use.part);
      },
      [&sharded, has_gradient](const PartUse& use) {
        if (sharded.stage == 3) close_values(sharded, use.part);
        if (has_gradient(use)) close_gradient(sharded, use.part);
      });
}

}  // namespace lab09
