// Correct forward and backward in the place of the student's, for the tests of task 4. They refuse
// what they cannot answer.
//
// The contract, pipeline_1f1b.h, declares the functions weak; it is not included here, so that
// these are strong and take their place.
#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/tensor/error.h"
#include "tests/labs/04_pipeline_1f1b/step_guard.h"

namespace lab04 {

lab::Tensor forward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
                    lab::ProcessGroup& pipeline);
void backward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
              const lab::Tensor& logits_gradient, lab::ProcessGroup& pipeline);

namespace {

lab::Tensor hidden_states(const lab::LlamaStage& stage, const lab::TokenBatch& batch) {
  return lab::Tensor::empty({batch.batch, batch.length, stage.config().dim});
}

}  // namespace

lab::Tensor forward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
                    lab::ProcessGroup& pipeline) {
  log_event("forward");
  lab::require(stage.activation_bytes() == 0,
               "train_step calls forward again on rank {}, before the backward of the first: one "
               "step is one forward and one backward",
               pipeline.rank());
  if (stage.span().embeds) {
    const lab::Tensor output = stage.forward(batch);
    if (!stage.span().has_head) pipeline.send(output, pipeline.rank() + 1);
    return output;
  }
  const lab::Tensor input = hidden_states(stage, batch);
  pipeline.recv(input, pipeline.rank() - 1);
  const lab::Tensor output = stage.forward(input);
  if (!stage.span().has_head) pipeline.send(output, pipeline.rank() + 1);
  return output;
}

void backward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
              const lab::Tensor& logits_gradient, lab::ProcessGroup& pipeline) {
  log_event("backward");
  lab::require(stage.activation_bytes() > 0,
               "train_step calls backward on rank {} without a forward before it", pipeline.rank());
  lab::Tensor output_gradient = logits_gradient;
  if (!stage.span().has_head) {
    output_gradient = hidden_states(stage, batch);
    pipeline.recv(output_gradient, pipeline.rank() + 1);
  }
  lab::require(output_gradient.defined(),
               "train_step gives backward no gradient of the logits on rank {}, the last stage: "
               "the loss leaves it in what forward returned",
               pipeline.rank());
  const lab::Tensor input_gradient = stage.backward(output_gradient);
  if (!stage.span().embeds) pipeline.send(input_gradient, pipeline.rank() - 1);
}

}  // namespace lab04
