// Lab 04 · one model cut over several ranks. You write this file; pipeline_1f1b.h is its contract.
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/todo.h"

namespace lab04 {

lab::Tensor forward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
                    lab::ProcessGroup& pipeline) {
  // TODO(1): the forward pass through all stages.
  //  1. Where does this stage's input come from: the batch, or which rank? What shape does an
  //     input that arrives have?
  //  2. Compute.
  //  3. Which rank needs the output?
  lab::not_implemented("1", "labs/04_pipeline_1f1b/pipeline_1f1b.cpp");
}

void backward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
              const lab::Tensor& logits_gradient, lab::ProcessGroup& pipeline) {
  // TODO(2): the backward pass through all stages, from the last to the first.
  //  1. Where does the gradient of this stage's output come from?
  //  2. Compute. What does stage.backward return, and on which stage is that undefined?
  //  3. Which rank needs it?
  lab::not_implemented("2", "labs/04_pipeline_1f1b/pipeline_1f1b.cpp");
}

std::vector<lab::StageSpan> split(int64_t layers, int stages, double head_cost) {
  // TODO(3): which layers each stage holds.
  //  1. How many layers should the last stage, which also computes the head, have? Try each number:
  //     how slow is the slowest of all stages then?
  //  2. Divide the other layers as evenly as possible.
  //  3. Turn numbers of layers into spans: first_layer, last_layer (one past the end), embeds,
  //     has_head.
  lab::not_implemented("3", "labs/04_pipeline_1f1b/pipeline_1f1b.cpp");
}

double clip_gradients(lab::LlamaStage& stage, double max_norm, lab::ProcessGroup& pipeline) {
  // TODO(4): clipping by the norm of the whole model's gradient.
  //  1. Which number of this stage do the other ranks need? lab::gradient_squares helps.
  //  2. Bring these numbers together: lab::sum_over. Which norm does every rank know now?
  //  3. When are gradients scaled, and by which factor? lab::scale, with stage.gradients().
  //  4. Which max_norm is refused, and before what?
  lab::not_implemented("4", "labs/04_pipeline_1f1b/pipeline_1f1b.cpp");
}

double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::TokenBatch& batch,
                  const LossFunction& loss, float learning_rate, double max_gradient_norm,
                  lab::ProcessGroup& pipeline) {
  // TODO(5): one optimizer step of the whole pipeline.
  //  1. Lab 01's train_step, line by line. What is left of it on a rank without the head?
  //  2. Clipping: clip_gradients, on all ranks or on none.
  //  3. The update: each stage updates its own weights.
  lab::not_implemented("5", "labs/04_pipeline_1f1b/pipeline_1f1b.cpp");
}

}  // namespace lab04
