// What LlamaStage hides: its weights and the microbatches in flight.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/model/layer.h"
#include "common/model/llama_stage.h"
#include "common/model/weights.h"

namespace lab {

/// All that one microbatch in flight holds; N = B*T.
struct InFlight {
  InFlight(const LlamaConfig& config, const StageSpan& span, int64_t batch_size, int64_t sequence,
           Device device);

  int64_t batch;
  int64_t length;
  std::vector<int32_t> tokens;  // [N], if the stage embeds
  std::vector<Tensor> hidden;   // [N, C] each: input of every layer, and output of the last
  std::vector<LayerActivations> layers;
  Tensor inverse_rms;  // [N], of the final norm
  Tensor logits;       // [B, T, V]
  size_t bytes = 0;
};

struct LlamaStage::Impl {
  Impl(const LlamaConfig& model, const StageSpan& part, Device where, uint64_t seed);

  /// Registers a microbatch, with memory of one that has ended if there is one of its shape: a
  /// training step allocates next to nothing.
  InFlight& begin(int microbatch, int64_t batch, int64_t length);
  /// Takes it out of the register; `what` is for the error message.
  std::unique_ptr<InFlight> end(int microbatch, const char* what);
  void recycle(std::unique_ptr<InFlight> state);

  /// Makes `scratch` fit a microbatch.
  void fit_scratch(const InFlight& state);
  /// Layers and head, from state.hidden[0] on.
  Tensor forward(InFlight& state);
  /// Gradient [B, T, C] of the stage's input from that of its output; undefined if it embeds.
  Tensor backward(InFlight& state, const Tensor& output_gradient);
  void head_backward(const InFlight& state, const Tensor& logits_gradient, const Tensor& gradient);

  PassObserver observer;  // may be empty
  LlamaConfig config;
  StageSpan span;
  Device device;
  Weights weights;
  Tensor rope_angles;
  std::map<int, std::unique_ptr<InFlight>> in_flight;
  std::vector<std::unique_ptr<InFlight>> idle;  // all of one shape
  std::optional<LayerScratch> scratch;          // for microbatches of scratch_rows positions
  int64_t scratch_rows = 0;
  size_t active_bytes = 0;
  size_t peak_bytes = 0;
};

}  // namespace lab
