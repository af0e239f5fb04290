// Lab 05 · trains a LLaMA in a pipeline that works on several microbatches at once. This program is
// given; you write what it calls from microbatches.h.
//
// With --simulate it trains nothing and shows your schedule in simulated time. "Changed" marks the
// places of the training loop that differ from lab 04's.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/agreement.h"
#include "common/comm/process_group.h"
#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/io/files.h"
#include "common/io/terminal.h"
#include "common/model/llama_stage.h"
#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"
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
#include "labs/05_microbatches/microbatches.h"

namespace {

using namespace lab;

enum class Messages { kNone, kSafe, kBlocking };

struct Options {
  TrainOptions train;
  LaunchOptions launch;
  PipelineOptions pipeline;
  int microbatches = 6;
  int waves = 1;
  std::string schedule = "1f1b";  // or "gpipe", or a file
  Messages messages = Messages::kNone;
  // Of --simulate:
  bool simulate = false;
  std::optional<int> stages;
  std::vector<double> costs = {1, 2};  // forward, backward, message
  std::string svg;
  bool print = false;
};

void add_schedule_options(CLI::App& app, Options& options) {
  const std::map<std::string, Messages> kinds = {{"safe", Messages::kSafe},
                                                 {"blocking", Messages::kBlocking}};
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Pipeline");
  };
  add("--microbatches", options.microbatches, "M", "that a wave takes through the pipeline")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add("--waves", options.waves, "W", "before each update of the weights")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add("--schedule", options.schedule, "gpipe|1f1b|FILE",
      "a file: as common/pipeline/schedule.h says")
      ->capture_default_str();
  const auto take = [&options, kinds](const std::string& word) {
    options.messages = kinds.at(word);
  };
  app.add_option_function<std::string>("--messages", take,
                                       "task 5's messages (default), or task 3's")
      ->type_name("safe|blocking")
      ->check(CLI::IsMember({"safe", "blocking"}).description(""))
      ->group("Pipeline");
}

void add_simulation_options(CLI::App& app, Options& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Simulation");
  };
  app.add_flag("--simulate", options.simulate,
               "no training: show the schedule in simulated time, without messages unless "
               "--messages says which")
      ->group("Simulation");
  add("--stages", options.stages, "P", "number of stages; default: those of the file, or 3")
      ->check(CLI::Range(1, 64));
  add("--costs", options.costs, "F,B[,M]", "of a forward, a backward, a message; default: 1,2,0")
      ->delimiter(',')
      ->expected(2, 3);
  add("--svg", options.svg, "FILE", "write the figure there, too");
  app.add_flag("--print", options.print, "print it as a schedule file instead")
      ->group("Simulation");
}

Options read_options(int argc, char** argv) {
  Options options;
  const auto add_options = [&](CLI::App& app) {
    add_launch_options(app, options.launch);
    add_pipeline_options(app, options.pipeline);
    add_schedule_options(app, options);
    add_simulation_options(app, options);
  };
  options.train = parse_train_options(
      argc, argv,
      {.about = "Trains a LLaMA in a pipeline that works on several microbatches at once.",
       .run_name = "microbatches",
       .batch = 1,
       .add_options = add_options,
       .kept = {"--microbatches", "--waves"},
       .carried = {"--schedule", "--messages", "--split", "--log-every"}});
  if (options.simulate) return options;
  const int stages = std::max(1, ranks_wanted(options.launch));
  drop_resumed_split(options.pipeline, options.train, stages);
  check_microbatches(options.microbatches, stages);
  return options;
}

/// The schedule that the options ask for. Throws Error, before any training, if it cannot be run.
Schedule make_schedule(const Options& options, int stages) {
  Schedule schedule = choose_schedule(options.schedule, stages, options.microbatches,
                                      {lab05::gpipe, lab05::one_f_one_b});
  if (schedule.has_messages() || options.messages == Messages::kNone) return schedule;
  if (options.messages == Messages::kBlocking) return lab05::with_blocking_messages(schedule);
  schedule = lab05::with_messages(schedule);
  require_valid(schedule, "schedule " + options.schedule + " with the messages of task 5");
  return schedule;
}

int stages_to_simulate(const Options& options) {
  if (options.stages) return *options.stages;
  const bool is_file = options.schedule != "gpipe" && options.schedule != "1f1b";
  return is_file ? read_schedule(options.schedule).stage_count() : 3;
}

int show_simulation(const Options& options) {
  const Schedule schedule = make_schedule(options, stages_to_simulate(options));
  if (options.print) {
    fmt::print("{}", to_text(schedule));
    return 0;
  }
  require_valid(schedule, "schedule " + options.schedule);
  const std::vector<double>& costs = options.costs;
  const Timeline timeline = simulate(
      schedule,
      {{.forward = costs[0], .backward = costs[1], .message = costs.size() > 2 ? costs[2] : 0.0}});
  fmt::print("{}", draw_grid(timeline, {.color = wants_color(STDOUT_FILENO)}));
  fmt::print("idle by theory, (p-1)/(m+p-1): {:.1f} %\n",
             100 * ideal_bubble(schedule.stage_count(), schedule.microbatches));
  if (!options.svg.empty()) write_file(options.svg, draw_svg(timeline));
  return 0;
}

int train(Job& job, const Options& all_options) {
  const TrainOptions& options = all_options.train;
  ProcessGroup& pipeline = job.world();
  const bool first_rank = pipeline.rank() == 0;
  set_thread_count(options.threads);
  agree_on_options(job, options);
  const Device device = agree_on_device(job, options);
  const lab01cuda::TrainingFunctions functions = lab01cuda::training_functions(device);

  // The schedule. New: what every stage does in a wave, and in which order.
  const Schedule schedule = make_schedule(all_options, pipeline.size());
  agree_on_schedule(job, schedule);

  // 1 · Input. As in lab 04: every rank reads the same microbatches.
  const Tokenizer tokenizer(options.tokenizer);
  const TokenDataset data = open_data(job, tokenizer, options);
  const int64_t length = options.model.context;
  const auto seed = static_cast<uint64_t>(options.seed);
  Sampler sampler(data.sequence_count(Split::kTrain, length), seed);

  // 2 · Model. As in lab 04: this rank's part of it only.
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
  if (first_rank)
    fmt::print("stages  {}\npipe    {}, {} x {} microbatches\n", describe_stages(spans),
               all_options.schedule, all_options.waves, schedule.microbatches);
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
    std::vector<TokenBatch> microbatches;
    for (int64_t i = 0; i < options.accumulate; ++i)
      microbatches.push_back(data.batch(Split::kTrain, sampler.next(options.batch), length));

    // 4 · Gradients. Changed: accumulated over microbatches that are in flight at the same time.
    // 5 · Loss. As in lab 04: on the last rank.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab05::train_step(stage, recorded_optimizer, schedule, microbatches,
                                              loss, learning_rate.at(step), options.clip, pipeline);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};
    goes_on = all_true(pipeline, run.goes_on(step + 1));
    ++steps_timed;

    // 6 · Metrics. As in lab 04: every n steps rank 0 records the loss, which the last rank has.
    const bool saves =
        !goes_on || (options.checkpoint_every > 0 && step % options.checkpoint_every == 0);
    if (step > 1 && step % all_options.pipeline.log_every != 0 && !saves &&
        !run.validation_due(step))
      continue;
    StepRecord record{.step = step, .learning_rate = learning_rate.at(step)};
    record.loss = from_last_stage(own_loss, pipeline);
    record.tokens_per_second =
        static_cast<double>(options.accumulate * options.batch * length * steps_timed) /
        stopwatch.seconds();
    if (run.validation_due(step)) record.val_loss = validate();
    run.record(record);

    // 7 · Checkpoint. As in lab 04: each rank writes its stage, all or none.
    if (saves) run.save_checkpoint();
    stopwatch = {};
    steps_timed = 0;
  }

  if (all_options.pipeline.timeline && last_step)
    show_timeline(job, stage, *last_step, schedule, run.folder());
  const int exit_code = run.finish();
  if (exit_code == 0 && first_rank && options.story_tokens > 0)
    print_story(load_model(find_checkpoint(run.folder())), tokenizer, options);
  return exit_code;
}

int start(int argc, char** argv) {
  Options options = read_options(argc, argv);
  if (options.simulate) return show_simulation(options);
  if (options.messages == Messages::kNone) options.messages = Messages::kSafe;
  const int64_t per_step = int64_t{options.microbatches} * options.waves;
  if (options.train.accumulate != 1 && options.train.accumulate != per_step)
    throw UsageError("--accumulate: here it is --microbatches times --waves; say these");
  options.train.accumulate = per_step;
  if (is_launcher(options.launch)) {
    // What all ranks would refuse is refused here, with one message.
    choose_stages(options.train.model, options.launch.ranks, options.pipeline, lab04::split);
    make_schedule(options, options.launch.ranks);
    return launch_ranks(options.launch, argc, argv);
  }
  Job job(read_rank_environment(options.launch));
  return train(job, options);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
