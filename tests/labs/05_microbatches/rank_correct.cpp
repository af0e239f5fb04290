// A correct executor, which replaces the student's.
#include "tests/labs/05_microbatches/rank_correct.h"

#include <optional>
#include <vector>

#include "tests/grading/implementation.h"

namespace lab05::given_4b {
namespace {

using lab::Action;
using lab::ActionKind;
using lab::Tensor;

/// What is known of one microbatch on its way through this stage.
struct Passage {
  Tensor input;           // of the forward
  Tensor output;          // of the forward; on the last stage, after the loss, its gradient
  Tensor gradient;        // of the output
  Tensor input_gradient;  // of the backward
  std::optional<lab::Work> input_recv;
  std::optional<lab::Work> gradient_recv;
};

void finish(std::optional<lab::Work>& work) {
  if (work) work->wait();
  work.reset();
}

class Runner {
 public:
  Runner(lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
         const LossFunction& loss, int64_t total_targets, lab::ProcessGroup& pipeline)
      : stage_(stage),
        microbatches_(microbatches),
        loss_(loss),
        total_targets_(total_targets),
        pipeline_(pipeline),
        passages_(microbatches.size()) {}

  double run(const lab::ActionList& actions) {
    for (const Action& action : actions) step(action);
    lab::wait_all(sends_);
    return loss_sum_;
  }

 private:
  void step(const Action& action) {
    Passage& passage = passages_.at(static_cast<size_t>(action.microbatch));
    const int rank = pipeline_.rank();
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(action.microbatch, passage);
      case ActionKind::kBackward:
        return backward(action.microbatch, passage);
      case ActionKind::kRecvActivation:
        return recv(action, rank - 1, passage.input, passage.input_recv);
      case ActionKind::kRecvGradient:
        return recv(action, rank + 1, passage.gradient, passage.gradient_recv);
      case ActionKind::kSendActivation:
        return send(action, rank + 1, passage.output);
      case ActionKind::kSendGradient:
        return send(action, rank - 1, passage.input_gradient);
    }
  }

  void forward(int k, Passage& passage) {
    const lab::TokenBatch& microbatch = microbatches_[static_cast<size_t>(k)];
    finish(passage.input_recv);
    passage.output =
        stage_.span().embeds ? stage_.forward(microbatch, k) : stage_.forward(passage.input, k);
    passage.input = {};
    if (!stage_.span().has_head) return;
    loss_sum_ += loss_(passage.output, microbatch, total_targets_);
    passage.gradient = passage.output;
  }

  void backward(int k, Passage& passage) {
    finish(passage.gradient_recv);
    passage.input_gradient = stage_.backward(passage.gradient, k);
    passage.gradient = passage.output = {};
  }

  void recv(const Action& action, int from, Tensor& tensor, std::optional<lab::Work>& work) {
    const lab::TokenBatch& microbatch = microbatches_[static_cast<size_t>(action.microbatch)];
    tensor = Tensor::empty({microbatch.batch, microbatch.length, stage_.config().dim});
    work = pipeline_.irecv(tensor, from, action.microbatch);
    if (!action.posted) finish(work);
  }

  void send(const Action& action, int to, const Tensor& tensor) {
    lab::Work work = pipeline_.isend(tensor, to, action.microbatch);
    if (!action.posted) return work.wait();
    sends_.push_back(std::move(work));
  }

  lab::LlamaStage& stage_;
  std::span<const lab::TokenBatch> microbatches_;
  const LossFunction& loss_;
  int64_t total_targets_;
  lab::ProcessGroup& pipeline_;
  std::vector<Passage> passages_;
  std::vector<lab::Work> sends_;
  double loss_sum_ = 0;
};

}  // namespace

LAB_GIVEN double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                             std::span<const lab::TokenBatch> microbatches,
                             const LossFunction& loss, int64_t total_targets,
                             lab::ProcessGroup& pipeline) {
  return Runner(stage, microbatches, loss, total_targets, pipeline).run(actions);
}

}  // namespace lab05::given_4b
