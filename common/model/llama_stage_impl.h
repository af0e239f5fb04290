// What LlamaStage hides: its weights and the microbatches in flight.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/model/layer.h"
#include "common/model/llama_stage.h"
#include "common/model/stage_passes.h"
#include "common/model/weights.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/device_tokens.h"

namespace lab {

/// A pass that a GPU can repeat: it consists of a hundred small kernels, and launching them one by
/// one takes longer than running them.
struct RecordedPass {
  int uses = 0;
  std::unique_ptr<RecordedWork> work;
};

/// Everything that one microbatch in flight holds; N = B*T.
struct InFlight {
  InFlight(const LlamaConfig& config, const StageSpan& span, int64_t batch_size, int64_t sequence,
           LayerMemory memory_of_layers);

  bool fits(int64_t batch_size, int64_t sequence, const LayerMemory& other) const;

  int64_t batch;
  int64_t length;
  LayerMemory memory;
  DeviceTokens tokens;         // [N], if the stage embeds
  std::vector<Tensor> hidden;  // [N, C] each: input of every layer, and output of the last
  std::vector<LayerActivations> layers;
  Tensor inverse_rms;  // [N], of the final norm
  Tensor logits;       // [B, T, V]
  size_t bytes = 0;

  // On a GPU only: recorded passes read and write the same addresses each time.
  Tensor gradient;                        // [N, C]
  std::shared_ptr<LayerScratch> scratch;  // that of the recordings
  RecordedPass forward;
  RecordedPass backward;
};

/// Throws Error for a token that is neither padding nor in the vocabulary.
void check_tokens(std::span<const int32_t> tokens, const LlamaConfig& config);

struct LlamaStage::Impl {
  Impl(const LlamaConfig& model, const StageSpan& layers, Device where, uint64_t initial,
       WeightMemory whose, const TensorSlice& slice = {},
       std::shared_ptr<StagePasses> stage_passes = {});

  /// Registers a microbatch, reusing the memory of a finished one of the same shape: a training
  /// step allocates next to nothing.
  InFlight& begin(int microbatch, int64_t batch, int64_t length);
  /// Takes it out of the register; `what` is for the error message.
  std::unique_ptr<InFlight> end(int microbatch, const char* what);
  void recycle(std::unique_ptr<InFlight> state);

  /// The memory and precision for the next microbatch.
  LayerMemory memory() const;
  /// Makes `scratch` large enough for a microbatch.
  void fit_scratch(InFlight& state);
  /// Runs `work`, a pass of this microbatch. On a GPU, it is recorded at its second use and the
  /// recording is repeated from then on.
  void run(const InFlight& state, RecordedPass& pass, const std::function<void()>& work);
  /// Whether the pass has a recording; makes one if necessary. If a library or the driver refuses
  /// to record, says so once and records nothing more: training continues kernel by kernel.
  bool record(RecordedPass& pass, const std::function<void()>& work);
  /// From tokens, or else from state.hidden[0] on.
  Tensor forward(InFlight& state);
  /// Gradient [B, T, C] of the stage's input from that of its output; undefined if it embeds.
  Tensor backward(InFlight& state, const Tensor& output_gradient);
  void head_backward(const InFlight& state, const Tensor& logits_gradient, const Tensor& gradient);
  void layers_backward(InFlight& state, const Tensor& gradient);
  /// Returns `part` if its weights may be bound; else throws Error.
  size_t bindable(size_t part) const;
  void expect_binding(size_t part, const Tensor& flat) const;
  /// Throws Error if a part's weights are not bound, or its gradients, for a backward pass.
  void expect_bound(Pass pass, size_t part) const;
  /// Calls `work`, which computes with `count` parts: those at places `first`, `first` + 1, ... in
  /// the order in which this pass needs the parts.
  void with_parts(Pass pass, size_t first, size_t count, const std::function<void()>& work) const;
  /// The parts that the head needs.
  size_t head_parts() const { return weights.tied_here ? 2 : 1; }
  /// The gradients of the part's parameters are ready, the last one first.
  void announce(size_t part) const;

  PassObserver observer;         // may be empty
  GradientReady gradient_ready;  // may be empty
  PartObserver before_part;      // may be empty
  PartObserver after_part;       // may be empty
  LlamaConfig whole;             // of the whole model
  LlamaConfig config;            // of its slice
  StageSpan span;
  TensorSlice tensor_slice;
  bool has_whole_layers;
  std::shared_ptr<LayerScratch> scratch;  // for microbatches of scratch_rows positions
  std::shared_ptr<StagePasses> passes;
  Device device;
  uint64_t seed;
  Weights weights;
  std::vector<size_t> part_order;  // of a forward pass
  bool rounded_is_old = true;      // those of the weights
  bool records = true;             // until recording a pass has failed
  Tensor rope_angles;
  std::map<int, std::unique_ptr<InFlight>> in_flight;
  std::vector<std::unique_ptr<InFlight>> idle;  // all of one shape
  int64_t scratch_rows = 0;
  size_t active_bytes = 0;
  size_t peak_bytes = 0;
};

}  // namespace lab
