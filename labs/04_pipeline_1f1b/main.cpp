// Lab 04 · trains a LLaMA that is cut into stages, one on each rank. This program is given; what it
// calls from pipeline_1f1b.h is yours.
//
// The seven cutpoints of lab 01's training loop again. "Changed" marks those where a pipeline makes
// a difference.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/agreement.h"
#include "common/comm/process_group.h"
#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/main_guard.h"
#include "common/run/options/options.h"
#include "common/run/options/pipeline_options.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/report/recorded_timeline.h"
#include "common/run/report/timeline_report.h"
#include "common/run/training/command_line.h"
#include "common/run/training/generate.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/01cuda_kernels/training_functions.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace {

using namespace lab;

struct Options {
  TrainOptions train;
  LaunchOptions launch;
  PipelineOptions pipeline;
};

Options read_options(int argc, char** argv) {
  Options options;
  const auto add_options = [&](CLI::App& app) {
    add_launch_options(app, options.launch);
    add_pipeline_options(app, options.pipeline);
  };
  options.train = parse_train_options(
      argc, argv,
      {.about = "Trains a LLaMA that is cut over several ranks: one forward, one backward pass.",
       .run_name = "pipeline",
       .add_options = add_options,
       .carried = {"--split", "--log-every"}});
  const int stages = std::max(1, ranks_wanted(options.launch));
  drop_resumed_split(options.pipeline, options.train, stages);
  if (options.train.accumulate != 1)
    throw UsageError("--accumulate: here the whole batch is one microbatch; lab 05 takes several");
  return options;
}

/// The schedule of a step: one forward, one backward on every stage.
Schedule one_forward_one_backward(int stages) {
  return {
      .microbatches = 1,
      .stages = std::vector<ActionList>(static_cast<size_t>(stages),
                                        {{ActionKind::kForward, 0}, {ActionKind::kBackward, 0}})};
}

int train(Job& job, const Options& all_options) {
  const TrainOptions& options = all_options.train;
  ProcessGroup& pipeline = job.world();
  const bool first_rank = pipeline.rank() == 0;
  set_thread_count(options.threads);
  agree_on_options(job, options);
  const Device device = agree_on_device(job, options);
  const lab01cuda::TrainingFunctions functions = lab01cuda::training_functions(device);

  // 1 · Input. Changed: every rank reads the same batches. The first stage needs the tokens, the
  // last one the targets.
  const Tokenizer tokenizer(options.tokenizer);
  const TokenDataset data = open_data(job, tokenizer, options);
  const int64_t length = options.model.context;
  const auto seed = static_cast<uint64_t>(options.seed);
  Sampler sampler(data.sequence_count(Split::kTrain, length), seed);

  // 2 · Model. Changed: only this rank's part of it.
  LlamaConfig config = options.model;
  config.vocab_size = tokenizer.vocab_size();
  const std::vector<StageSpan> spans =
      choose_stages(config, pipeline.size(), all_options.pipeline, lab04::split);
  agree_on_pipeline(job, spans, all_options.pipeline);
  LlamaStage stage(config, spans[static_cast<size_t>(pipeline.rank())], device, seed);
  const auto optimizer = make_optimizer(options, stage, functions.adam);

  FlightRecorder& recorder = pipeline.recorder();
  record_passes(stage, recorder);
  const auto loss = recorded_loss(functions.loss, recorder);
  RecordedOptimizer recorded_optimizer(*optimizer, recorder);

  TrainingRun run(options,
                  {stage, *optimizer, sampler, tokenizer, data, RankOfModel::in_pipeline(pipeline)},
                  first_rank ? RunFiles::kWritten : RunFiles::kNone);
  if (first_rank) fmt::print("stages  {}\n", describe_stages(spans));
  job.agree("first step", fmt::format("{}", run.first_step()));
  const LearningRate learning_rate = options.learning_rates();
  const auto validate = [&] {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage, batch, pipeline);
    };
    return validation_loss(stage, data, options, functions.loss, forward, pipeline);
  };
  if (run.first_step() == 1) run.record_start(validate());

  // 3 · Loop. As in lab 02: all ranks leave it together.
  Stopwatch stopwatch;
  int64_t steps_timed = 0;
  std::optional<TimeWindow> last_step;
  bool goes_on = all_true(pipeline, run.goes_on(run.first_step()));
  for (int64_t step = run.first_step(); goes_on; ++step) {
    const TokenBatch batch = data.batch(Split::kTrain, sampler.next(options.batch), length);

    // 4 · Gradients. Changed: each rank has those of its own layers, and nothing is averaged.
    // 5 · Loss. Changed: only on the last rank.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab04::train_step(stage, recorded_optimizer, batch, loss,
                                              learning_rate.at(step), options.clip, pipeline);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};
    goes_on = all_true(pipeline, run.goes_on(step + 1));
    ++steps_timed;

    // 6 · Metrics. Changed: rank 0 records the loss of the last rank, every n steps.
    const bool saves =
        !goes_on || (options.checkpoint_every > 0 && step % options.checkpoint_every == 0);
    if (step > 1 && step % all_options.pipeline.log_every != 0 && !saves &&
        !run.validation_due(step))
      continue;
    StepRecord record{.step = step, .learning_rate = learning_rate.at(step)};
    record.loss = from_last_stage(own_loss, pipeline);
    record.tokens_per_second =
        static_cast<double>(options.batch * length * steps_timed) / stopwatch.seconds();
    if (run.validation_due(step)) record.val_loss = validate();
    run.record(record);

    // 7 · Checkpoint. Changed: each rank writes its stage; either all succeed or none counts.
    if (saves) run.save_checkpoint();
    stopwatch = {};
    steps_timed = 0;
  }

  if (all_options.pipeline.timeline && last_step)
    show_timeline(job, stage, *last_step, one_forward_one_backward(pipeline.size()), run.folder());
  const int exit_code = run.finish();
  if (exit_code == 0 && first_rank && options.story_tokens > 0)
    print_story(load_model(find_checkpoint(run.folder())), tokenizer, options);
  return exit_code;
}

int start(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  if (is_launcher(options.launch)) {
    // An error that all ranks would report is reported once, here.
    choose_stages(options.train.model, options.launch.ranks, options.pipeline, lab04::split);
    return launch_ranks(options.launch, argc, argv);
  }
  Job job(read_rank_environment(options.launch));
  return train(job, options);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
