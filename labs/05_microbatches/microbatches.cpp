// Lab 05 · a pipeline that is kept busy. You write this file; microbatches.h is its contract.
#include "labs/05_microbatches/microbatches.h"

#include <algorithm>
#include <map>
#include <vector>

#include "common/error.h"
#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"
#include "common/todo.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace lab05 {

// --- 5A

lab::Schedule gpipe(int stages, int microbatches) {
  // TODO(1): all forwards, then all backwards.
  lab::not_implemented("1", "labs/05_microbatches/microbatches.cpp");
}

lab::Schedule one_f_one_b(int stages, int microbatches) {
  // TODO(2): warm-up, steady state, cool-down.
  //  1. How long is the warm-up of stage r? What if there are fewer microbatches than that?
  //  2. How many pairs of one forward and one backward follow?
  //  3. What is left?
  lab::not_implemented("2", "labs/05_microbatches/microbatches.cpp");
}

// --- 5B

lab::Schedule with_blocking_messages(const lab::Schedule& plan) {
  // TODO(3): around every pass, the messages that it needs: receive, compute, send.
  //  1. Which stage receives nothing before a forward? Which one before a backward?
  //  2. Which stage sends nothing after a forward? Which one after a backward?
  lab::not_implemented("3", "labs/05_microbatches/microbatches.cpp");
}

double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline) {
  // TODO(4a): what one stage does in one wave, if no message is posted.
  //  1. Six kinds of actions: what does each of them need, and what does it leave behind?
  //  2. Under which number does a later action look for what an earlier one has left?
  //  3. Where does the loss come in, on the last stage?
  // TODO(4b): afterwards, posted messages. Until then the `if` below refuses them.
  //  1. What must you keep until a posted recv is waited for, and which action waits for it?
  //  2. What does isend return, and until when must you keep it?
  if (std::ranges::any_of(actions, &lab::Action::posted))
    lab::not_implemented("4b", "labs/05_microbatches/microbatches.cpp");
  lab::not_implemented("4a", "labs/05_microbatches/microbatches.cpp");
}

// --- 5C

lab::Schedule with_messages(const lab::Schedule& plan) {
  // TODO(5): the messages of task 3, arranged so that no stages wait in a circle and none waits
  // for a message that could have travelled earlier.
  //  1. Which messages do you post?
  //  2. How early does a recv begin? How many are open at the same time, then?
  lab::not_implemented("5", "labs/05_microbatches/microbatches.cpp");
}

double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& pipeline) {
  // TODO(6): one optimizer step of the whole pipeline, over one or several waves.
  //  1. Are these whole waves, at least one: w * m microbatches, w >= 1? (lab::require)
  //  2. How many targets does the whole step have?
  //  3. Zero the gradients. Which actions are this rank's? Run them once per wave.
  //  4. Clip over all stages, update.
  lab::not_implemented("6", "labs/05_microbatches/microbatches.cpp");
}

}  // namespace lab05
