// Lab 06 · trains a LLaMA on several pipelines and has it tell a story: the workbook's trainer.
// This program is given; the functions it calls from hybrid_2x3.h are yours.
//
// "Changed" marks the places of the training loop that differ from lab 05's.
#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/agreement.h"
#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/checkpoint_parts.h"
#include "common/run/launch/job.h"
#include "common/run/options/main_guard.h"
#include "common/run/options/mesh_options.h"
#include "common/run/options/options.h"
#include "common/run/options/pipeline_options.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/report/recorded_timeline.h"
#include "common/run/report/run_files.h"
#include "common/run/report/timeline_report.h"
#include "common/run/report/whose_labs.h"
#include "common/run/training/command_line.h"
#include "common/run/training/generate.h"
#include "common/run/training/restarts.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/01cuda_kernels/training_functions.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/05_microbatches/microbatches.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"

namespace {

using namespace lab;

struct Options {
  TrainOptions train;
  LaunchOptions launch;
  PipelineOptions pipeline;
  MeshOptions mesh;
  RestartOptions restarts;
};

Options read_options(int argc, char** argv) {
  Options options;
  const auto add_options = [&](CLI::App& app) {
    add_launch_options(app, options.launch);
    add_restart_options(app, options.restarts);
    add_mesh_options(app, options.mesh);
    add_pipeline_options(app, options.pipeline);
  };
  options.train =
      parse_train_options(argc, argv,
                          {.about = "Trains a LLaMA on several pipelines and has it tell a story.",
                           .run_name = "hybrid",
                           .batch = 1,
                           .steps = 350,
                           .checkpoint_every = 50,
                           .add_options = add_options,
                           .kept = {"--waves"},
                           .carried = {"--dp", "--pp", "--schedule", "--split", "--log-every"}});
  settle_mesh(options.mesh, options.launch, options.train);
  drop_resumed_split(options.pipeline, options.train, options.mesh.pp);
  return options;
}

/// One pipeline's program. Throws Error, before any training, for a schedule that cannot be run.
Schedule make_schedule(const MeshOptions& mesh) {
  const Schedule schedule = choose_schedule(mesh.schedule, mesh.pp, mesh.microbatches,
                                            {lab05::gpipe, lab05::one_f_one_b});
  return schedule.has_messages() ? schedule : lab05::with_messages(schedule);
}

int train(Job& job, const Options& all_options) {
  const TrainOptions& options = all_options.train;
  ProcessGroup& world = job.world();
  const bool first_rank = world.rank() == 0;
  set_thread_count(options.threads);
  agree_on_options(job, options);
  const Device device = agree_on_device(job, options);
  const lab01cuda::TrainingFunctions functions = lab01cuda::training_functions(device);

  // The mesh. New: this rank's place among pipelines and stages, and its two groups.
  const MeshOptions& shape = all_options.mesh;
  const Schedule schedule = make_schedule(shape);
  agree_on_schedule(job, schedule);
  lab06::Mesh mesh = lab06::make_mesh(world, shape.dp, shape.pp);

  // 1 · Input. Changed: every pipeline reads its own shard, by lab 02's rules.
  const Tokenizer tokenizer(options.tokenizer);
  const TokenDataset data = open_data(job, tokenizer, options);
  const int64_t length = options.model.context;
  const auto seed = static_cast<uint64_t>(options.seed);
  Sampler sampler(
      data.sequence_count(Split::kTrain, length), seed,
      [&](std::span<const int64_t> order) { return lab06::shard(order, mesh.place, shape.dp); });

  // 2 · Model. As in labs 04 and 05: this rank's stage.
  LlamaConfig config = options.model;
  config.vocab_size = tokenizer.vocab_size();
  const std::vector<StageSpan> spans =
      choose_stages(config, shape.pp, all_options.pipeline, lab04::split);
  agree_on_pipeline(job, spans, all_options.pipeline);
  LlamaStage stage(config, spans[static_cast<size_t>(mesh.place.stage)], device, seed);
  const auto optimizer = make_optimizer(options, stage, functions.adam);

  FlightRecorder& recorder = world.recorder();
  record_passes(stage, recorder);
  const auto loss = recorded_loss(functions.loss, recorder);
  RecordedOptimizer recorded_optimizer(*optimizer, recorder);

  TrainingRun run(
      options, {stage, *optimizer, sampler, tokenizer, data, RankOfModel::in_mesh(world, shape.pp)},
      first_rank ? RunFiles::kWritten : RunFiles::kNone);
  if (first_rank)
    fmt::print("mesh    {} x {} stages, {}\npipe    {}, {} x {} microbatches\n", shape.dp, shape.pp,
               describe_stages(spans), shape.schedule, shape.waves, schedule.microbatches);
  job.agree("first step", fmt::format("{}", run.first_step()));
  const LearningRate learning_rate = options.learning_rates();
  const auto validate = [&] {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage, batch, mesh.pipeline);
    };
    return validation_loss(stage, data, options, functions.loss, forward, mesh.pipeline,
                           &mesh.replicas);
  };
  if (run.first_step() == 1) run.record_start(validate());

  // 3 · Loop. As in lab 02: all ranks leave it together.
  Stopwatch stopwatch;
  int64_t steps_timed = 0;
  std::optional<TimeWindow> last_step;
  bool goes_on = all_true(world, run.goes_on(run.first_step()));
  for (int64_t step = run.first_step(); goes_on; ++step) {
    std::vector<TokenBatch> microbatches;
    for (int64_t i = 0; i < options.accumulate; ++i)
      microbatches.push_back(data.batch(Split::kTrain, sampler.next(options.batch), length));

    // 4 · Gradients. Changed: accumulated in each pipeline, then summed over the replicas of each
    // stage.
    // 5 · Loss. Changed: each pipeline's last stage has a part of it.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab06::train_step(stage, recorded_optimizer, schedule, microbatches,
                                              loss, learning_rate.at(step), options.clip, mesh);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};
    goes_on = all_true(world, run.goes_on(step + 1));
    ++steps_timed;

    // 6 · Metrics. Changed: the mean over all pipelines, every n steps.
    const bool saves =
        !goes_on || (options.checkpoint_every > 0 && step % options.checkpoint_every == 0);
    if (step > 1 && step % all_options.pipeline.log_every != 0 && !saves &&
        !run.validation_due(step))
      continue;
    StepRecord record{.step = step, .learning_rate = learning_rate.at(step)};
    record.loss = lab06::mean_loss(own_loss, mesh);
    record.tokens_per_second =
        static_cast<double>(sequences_per_step(options) * length * steps_timed) /
        stopwatch.seconds();
    if (run.validation_due(step)) record.val_loss = validate();
    run.record(record);

    // 7 · Checkpoint. Changed: every rank writes its part; all of them appear together, or none.
    if (saves) {
      run.save_checkpoint();
      if (first_rank) print_sample(run.folder(), step, tokenizer, options);
    }
    stopwatch = {};
    steps_timed = 0;
  }

  const int exit_code = run.finish();
  if (last_step) {
    const auto step = measured_step(job, stage, *last_step, schedule);
    if (step && all_options.pipeline.timeline) print_timeline(*step, run.folder());
    if (step) write_run_report(run.folder(), *step, {options, config, shape, spans, kWhoseLabs});
  }
  if (exit_code == 0 && first_rank && options.story_tokens > 0)
    print_story(load_model(find_checkpoint(run.folder())), tokenizer, options);
  return exit_code;
}

int start(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  if (is_launcher(options.launch)) {
    // Report once, before any rank starts, what all ranks would refuse.
    choose_stages(options.train.model, options.mesh.pp, options.pipeline, lab04::split);
    make_schedule(options.mesh);
    return launch_training(options.launch, options.restarts, options.train, {argv, argv + argc});
  }
  Job job(read_rank_environment(options.launch));
  return train(job, options);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
