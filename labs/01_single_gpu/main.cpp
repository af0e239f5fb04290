// Lab 01 · trains a LLaMA on one device. This program is given; you write the functions of
// single_gpu.h that it calls.
//
// Every training loop has seven cutpoints, marked by the comments below. Later labs change some of
// them to spread the work over several devices.
#include <vector>

#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/options/choose_device.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/check_gradients.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace {

using namespace lab;

int train(int argc, char** argv) {
  bool check = false;
  const RunPlan plan = settle_plan(argc, argv,
                                   {.about = "Trains a LLaMA that tells stories, on one device.",
                                    .add_options = [&check](CommandLine& line) {
                                      line.add_flag("--check-gradients", check,
                                                    "no training: compare with finite differences");
                                    }});
  if (check) return lab01::check_gradients(&lab01::causal_lm_loss);
  set_thread_count(plan.threads);
  const Device device = choose_device(plan.device, plan.precision).device;
  const TrainingFunctions functions = training_functions(device);
  const auto seed = static_cast<uint64_t>(plan.seed);

  // 1 · Input: stories as sequences of tokens, in an order determined by the seed.
  const Tokenizer tokenizer(plan.tokenizer);
  const TokenDataset data(plan.data, tokenizer, plan.cache);
  Sampler sampler(data.sequence_count(Split::kTrain, plan.model.context), seed);

  // 2 · Model: initial weights determined by the seed, and the optimizer that updates them.
  LlamaConfig config = plan.model;
  config.vocab_size = tokenizer.vocab_size();
  LlamaStage model(config, StageSpan::whole(config), device, seed);
  const auto optimizer = make_optimizer(plan, model, functions.adam);
  const auto validate = [&] { return validation_loss(model, data, plan, functions.loss); };

  // 3 · Loop: one optimizer step after the other.
  TrainingRun run(plan, {model, *optimizer, sampler, tokenizer, data, validate});
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();

    // 4 · Gradient aggregation: on one device, only over the microbatches of the step.
    // 5 · Loss: each position's prediction against the token that actually came next.
    const double loss = lab01::train_step(model, *optimizer, microbatches, functions.loss,
                                          learning_rate.at(step), plan.clip);

    // 6 · Metrics: is it learning, and how fast?
    run.record(step, loss);

    // 7 · Checkpoint: everything needed to continue from here as if nothing had happened.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  run.finish();
  run.tell_story();
  return run.exit_code();
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, train); }
