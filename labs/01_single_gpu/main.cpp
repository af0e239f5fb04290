// Lab 01 · trains a LLaMA on one device. This program is given; you write the functions of
// single_gpu.h that it calls.
//
// Every training loop has seven cutpoints, marked by the comments below. Later labs change some of
// them to spread the work over several devices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/options/choose_device.h"
#include "common/run/options/main_guard.h"
#include "common/run/options/options.h"
#include "common/run/training/command_line.h"
#include "common/run/training/generate.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/check_gradients.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/01cuda_kernels/training_functions.h"

namespace {

using namespace lab;

int train(int argc, char** argv) {
  bool check = false;
  const TrainOptions options = parse_train_options(
      argc, argv,
      {.about = "Trains a LLaMA that tells stories, on one device.",
       .add_options = [&check](CLI::App& app) {
         app.add_flag("--check-gradients", check, "no training: compare with finite differences");
       }});
  if (check) return lab01::check_gradients(&lab01::causal_lm_loss);
  set_thread_count(options.threads);
  const Device device = choose_device(options.device, options.precision).device;
  const lab01cuda::TrainingFunctions functions = lab01cuda::training_functions(device);
  const auto seed = static_cast<uint64_t>(options.seed);

  // 1 · Input: stories as sequences of tokens, in an order determined by the seed.
  const Tokenizer tokenizer(options.tokenizer);
  const TokenDataset data(options.data, tokenizer, options.cache);
  const int64_t length = options.model.context;
  Sampler sampler(data.sequence_count(Split::kTrain, length), seed);

  // 2 · Model: initial weights determined by the seed, and the optimizer that updates them.
  LlamaConfig config = options.model;
  config.vocab_size = tokenizer.vocab_size();
  LlamaStage model(config, StageSpan::whole(config), device, seed);
  const auto optimizer = make_optimizer(options, model, functions.adam);

  TrainingRun run(options, {model, *optimizer, sampler, tokenizer, data});
  const LearningRate learning_rate = options.learning_rates();
  if (run.first_step() == 1)
    run.record_start(validation_loss(model, data, options, functions.loss));

  // 3 · Loop: one optimizer step after the other.
  for (int64_t step = run.first_step(); run.goes_on(step); ++step) {
    const Stopwatch stopwatch;
    std::vector<TokenBatch> microbatches;
    for (int64_t i = 0; i < options.accumulate; ++i)
      microbatches.push_back(data.batch(Split::kTrain, sampler.next(options.batch), length));

    // 4 · Gradient aggregation: on one device, only over the microbatches of the step.
    // 5 · Loss: each position's prediction against the token that actually came next.
    StepRecord record{.step = step, .learning_rate = learning_rate.at(step)};
    record.loss = lab01::train_step(model, *optimizer, microbatches, functions.loss,
                                    learning_rate.at(step), options.clip);

    // 6 · Metrics: is it learning, and how fast?
    const auto tokens = static_cast<double>(options.accumulate * options.batch * length);
    record.tokens_per_second = tokens / stopwatch.seconds();
    if (run.validation_due(step))
      record.val_loss = validation_loss(model, data, options, functions.loss);
    run.record(record);

    // 7 · Checkpoint: everything needed to continue from here as if nothing had happened.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  const int exit_code = run.finish();
  if (exit_code == 0) print_story(model, tokenizer, options);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, train); }
