// Estimate: the cost model. Memory, time and lost time of one way to train a model on a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/tools/plan/cluster.h"
#include "common/tools/plan/pipeline_time.h"

namespace lab {

/// Bytes of numbers. Per parameter: weight, gradient, Adam's two moments, and any copies.
struct NumberFormat {
  std::string name = "float32";
  double value = 4;       // an activation, also as a message
  double gradient = 4;    // of a parameter, also in an all-reduce
  double parameter = 16;  // everything kept per parameter
  double update = 36;     // read and written per parameter in an update, with norm and zeroing
};

/// float32: 4 + 4 + 8 bytes per parameter; an update reads four numbers and writes three; the norm
/// and the zeroing take one pass each. Mixed: bfloat16 values, gradients added up in float32, a
/// float32 copy of the weights: 2 + 4 + 4 + 8 = 18 bytes (Megatron Core User Guide, "Distributed
/// Optimizer"; with bfloat16 gradients 16, Rajbhandari et al., "ZeRO" (2020), section 3.1). This is
/// not the --precision bfloat16 of this workbook, which keeps the residual stream, and thus
/// messages, in float32.
NumberFormat float32_precision();
NumberFormat mixed_precision();

/// What is to be trained. A step has `batch` sequences of `length` tokens, however they are
/// divided.
struct Training {
  LlamaConfig model;
  int64_t length = 256;  // tokens of a sequence
  int64_t batch = 12;    // sequences of a step, all ranks together
  NumberFormat precision;
  PassOrder order = PassOrder::kOneFOneB;
  bool recompute = false;  // layers' activations

  /// Throws Error: an impossible model, a length or batch out of range.
  void validate() const;
};

/// dp pipelines of pp stages, each on tp ranks that divide its layers (lab 10); m microbatches a
/// step in each, each of batch / (dp m) sequences. Rank (d * pp + s) * tp + t is slice t of stage s
/// of pipeline d. With `shard` (lab 09), pp and tp are 1, and the dp replicas hold in shards the
/// optimizer's state (1), gradients, too (2), weights, too (3).
struct Layout {
  int dp = 1;
  int pp = 1;
  int m = 1;
  int tp = 1;
  int shard = 0;

  int ranks() const { return dp * pp * tp; }
  bool operator==(const Layout&) const = default;
};

struct Estimate {
  Layout layout;
  int64_t microbatch = 1;       // sequences
  std::vector<int64_t> layers;  // of each stage
  std::vector<double> memory;   // bytes of a rank of each stage
  int fullest_stage = 0;
  double missing = 0;  // bytes that a rank of the fullest stage lacks (shared cores: the machine)

  double step = 0;  // seconds
  double tokens_per_s = 0;
  // Fractions of the step; together 1.
  double compute = 0;        // as if all ranks had the same work and were never idle
  double bubble = 0;         // idle in the pipeline, waiting or because stages are unequal
  double communication = 0;  // what messages and all-reduces add to the time of a step
  double update = 0;

  bool fits() const { return missing <= 0; }
  double largest_memory() const { return memory[static_cast<size_t>(fullest_stage)]; }
};

/// Bytes that a rank of stage s holds for parameters: parameters * precision.parameter. In shards,
/// what is divided counts 1/dp, plus what a pass needs whole at one time: two parts'
/// weights (shard 3: this one and the next), a part's gradient (shard 2 and 3; a tied head's logits
/// need one more of each). A part is a layer or one end of the model.
double parameter_memory(const Training& training, const Layout& layout, const StageSpan& span);

/// Bytes that a rank of stage s holds:
///   parameter_memory
///   + tokens of a microbatch * value bytes * (kept_per_token * most_in_flight + scratch_per_token)
/// Not counted: messages in transit, and what libraries and the allocator use.
double stage_memory(const Training& training, const Layout& layout,
                    const std::vector<StageSpan>& spans, int stage);

/// A step takes  max over stages of (end of its passes + its all-reduce)  + the longest update:
///   - passes: stage_ends, with stage_flops * tokens / rate; a message has C numbers a token and
///     takes the slower of a stage's links, in the pipeline whose links are slowest;
///   - with tp > 1, in each pass: two all-reduces a layer of C numbers a token among the slices,
///     one for the embedding in the forward pass and one for the head in the backward pass. Nothing
///     hides them;
///   - all-reduce of a stage's gradients among the dp ranks that hold it, when that stage is done
///     (hidden by the passes of other stages where those take longer);
///   - shards: the same bytes as that all-reduce with shard 1, half of them once a microbatch and
///     half once a step with 2, and three halves a microbatch with 3. Overlap from prefetching is
///     not deducted;
///   - update: bytes read and written / memory bandwidth. It begins on all ranks at once: clipping
///     needs the norm of all gradients.
/// Left out: messages of a few bytes (norm, loss), reading data, checkpoints, and that small
/// matrices are multiplied less efficiently than large ones. Throws Error unless the layout suits
/// the training: pp <= layers, dp * m divides the batch, pp = 1 if the head is tied, tp divides
/// heads, heads of keys and the MLP's channels (slice_config), at most as many ranks as devices.
Estimate estimate(const Training& training, const Cluster& cluster, const Layout& layout);

/// The rate (DeviceSpec::flops) at which one process on the cluster's first device, or on all its
/// shared cores, would train `tokens_per_s`: turns one measurement into a device. Throws Error if
/// the updates alone would take longer.
double calibrated_flops(const Training& training, const Cluster& cluster, double tokens_per_s);

}  // namespace lab
