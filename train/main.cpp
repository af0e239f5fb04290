// ./workbook train: trains a LLaMA on several ranks, by the code of the labs, and has it tell a
// story.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

#include "common/error.h"
#include "common/model/slice.h"
#include "common/run/options/main_guard.h"
#include "common/run/report/run_files.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/run/training/pipeline_setup.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/whose_labs.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/05_microbatches/microbatches.h"
#include "train/memory.h"
#include "train/trainee.h"

namespace train {
namespace {

using namespace lab;

Schedule make_schedule(const RunPlan& plan) {
  const Schedule schedule = choose_schedule(plan.schedule, plan.pp, plan.microbatches,
                                            {lab05::gpipe, lab05::one_f_one_b});
  return schedule.has_messages() ? schedule : lab05::with_messages(schedule);
}

/// What a run does not share with those of the labs.
struct Options {
  bool overlap = false;
  int64_t memory_limit_mb = 0;
};

std::vector<StageSpan> make_stages(const RunPlan& plan) {
  if (plan.shard > 0) return {StageSpan::whole(plan.model)};
  return choose_stages(plan.model, plan.pp, plan.split, lab04::split);
}

int train(Job& job, const RunPlan& plan, const Options& options, const MemoryAccount& memory) {
  const Schedule schedule = make_schedule(plan);
  const Setup setup(job, plan);
  agree_on_schedule(job, schedule);
  const std::vector<double> planned =
      planned_memory(plan, setup.model.vocab_size, make_stages(plan));
  check_limit(plan, options.memory_limit_mb, planned);
  const Surroundings around{job, plan, setup, schedule};
  const auto trainee = plan.shard > 0 ? shards(around) : pipelines(around, options.overlap);
  TrainingRun run(plan, trainee->parts(), &job);
  const LearningRate learning_rate = plan.learning_rates();
  std::optional<TimeWindow> last_step;
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = trainee->step(microbatches, learning_rate.at(step));
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};
    if (run.record_due(step)) run.record(step, trainee->mean_loss(own_loss));
    // With a limit, one that is too low for a checkpoint shows at once.
    if (run.checkpoint_due(step) || (step == 1 && options.memory_limit_mb > 0)) {
      run.save_checkpoint();
      const CountMemory nobody(nullptr);
      if (job.world().rank() == 0) print_sample(run.folder(), step, setup.tokenizer, plan);
    }
  }

  run.finish();
  const std::vector<RankMemory> ranks = gather_memory(job.world(), memory, plan, planned);
  const CountMemory nobody(nullptr);
  std::optional<StepTimeline> measured;  // on rank 0
  if (last_step) measured = measured_step(job, trainee->model(), *last_step, schedule, plan.tp);
  if (measured && plan.timeline) print_timeline(*measured, run.folder());
  if (job.world().rank() == 0) {
    write_run_report(run.folder(), measured,
                     {plan, setup.model, trainee->parts().stages, kWhoseLabs, ranks});
    fmt::print("{}\n", describe_memory(ranks));
  }
  run.tell_story();
  return run.exit_code();
}

int train_within(Job& job, const RunPlan& plan, const Options& options) {
  const auto memory = std::make_shared<MemoryAccount>();
  memory->set_limit(1'000'000 * options.memory_limit_mb);
  const CountMemory counting(memory);
  try {
    return train(job, plan, options, *memory);
  } catch (const OutOfMemory& error) {
    fail("{}; more stages (--pp), --tp, --shard or fewer sequences (--batch) need less",
         error.what());
  }
}

/// Reports once, before any rank starts, what all ranks would refuse.
void check(const RunPlan& plan, const Options& options) {
  const std::vector<StageSpan> stages = make_stages(plan);
  slice_config(plan.model, {.rank = 0, .ranks = plan.tp});
  make_schedule(plan);
  if (options.memory_limit_mb > 0)
    check_limit(plan, options.memory_limit_mb,
                planned_memory(plan, Tokenizer(plan.tokenizer).vocab_size(), stages));
}

/// Refuses what makes no sense together, or has not been built.
void settle(const RunPlan& plan, bool overlap) {
  const auto refuse = [](bool wrong, const std::string& message) {
    if (wrong) throw UsageError(message);
  };
  if (overlap) {
    refuse(plan.shard > 0,
           fmt::format("--overlap: with --shard {}, gradients travel in another way; leave one out",
                       plan.shard));
    refuse(plan.tp > 1, "--overlap: only whole layers can do that so far; leave it or --tp out");
    refuse(
        plan.dp == 1,
        fmt::format("--overlap: 1 x {} has no other pipeline to send gradients to; ask for more, "
                    "for example with --dp 2",
                    plan.pp));
  }
  if (plan.tp > 1) {
    refuse(plan.device != "cpu",
           fmt::format("--tp {}: slices of layers are computed on the CPU only; say --device cpu",
                       plan.tp));
    refuse(plan.precision != "float32",
           fmt::format("--tp {}: slices of layers are computed in float32 only; say --precision "
                       "float32",
                       plan.tp));
  }
  if (plan.shard > 0) {
    refuse(plan.precision == "bfloat16",
           "--shard: there are no shards in bfloat16; use --precision float32, or --shard 0");
    refuse(!plan.split.empty(), "--split: with --shard every rank has all layers; leave it out");
  }
  refuse(std::string(kWhoseLabs) == "mine" && (overlap || plan.shard > 0 || plan.tp > 1),
         "--mine trains with your labs 01 to 06, without --overlap, --shard and --tp; your labs 08 "
         "to 10 train with ./workbook run 8 --mine, and so on");
}

int start(int argc, char** argv) {
  Options options;
  const auto add_options = [&](CommandLine& line) {
    line.group("Run");
    line.add("--memory-limit", options.memory_limit_mb, "MB",
             "refuse to hold more in the tensors of a rank, apart from the samples that rank 0 "
             "writes; 0: no limit")
        .within(0, 1'000'000)
        .shows_default()
        .carried();
    line.group("Mesh");
    line.add_flag("--overlap", options.overlap,
                  "gradients travel to the other pipelines in buckets, during the last backward "
                  "pass (lab 08): pays on a slow network; not kept on --resume");
  };
  const RunPlan plan =
      settle_plan(argc, argv,
                  {.about = "Trains a LLaMA on several ranks and has it tell a story.",
                   .run_name = "train",
                   .division = Division::kTrainer,
                   .batch = 1,
                   .steps = 350,
                   // A run of a few minutes gets further with twice the labs' rate, which six
                   // sequences a step tolerate after a long warm-up, and with an embedding that the
                   // first layer does not drown (docs/measurements.md).
                   .learning_rate = 1.6e-3,
                   .warmup_share = 3,
                   .embedding_scale = 10,
                   .checkpoint_every = 50,
                   .validation_batches = 48,  // of one sequence each
                   .log_every = 10,
                   .restarts = true,
                   .add_options = add_options,
                   .settle = [&](const RunPlan& settled) { settle(settled, options.overlap); }});
  return run_program(
      plan, argc, argv,
      [&](Job& job, const RunPlan& settled) { return train_within(job, settled, options); },
      [&](const RunPlan& settled) { check(settled, options); });
}

}  // namespace
}  // namespace train

int main(int argc, char** argv) { return lab::run_main(argc, argv, train::start); }
