// Lab 03 · trains a LLaMA on several ranks that average their weights every k steps. This program
// is given; what it calls from weight_aggregation.h is yours.
//
// It has the seven cutpoints of lab 01's training loop. "Changed" marks what differs from lab 02.
#include <fmt/format.h>

#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "common/data/sampler.h"
#include "common/data/sorted_shard.h"
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/03_weight_aggregation/weight_aggregation.h"

namespace {

using namespace lab;

/// The options that only this program has.
struct OwnOptions {
  int64_t every = 8;
  std::string shards = "alike";
  bool drift = false;
};

/// Bytes that this rank has passed to all_reduce so far.
uint64_t bytes_sent(const ProcessGroup& world) {
  return world.recorder().snapshot().traffic[static_cast<size_t>(OpKind::kAllReduce)].bytes;
}

int train(Job& job, const RunPlan& plan, const OwnOptions& own) {
  ProcessGroup& world = job.world();
  const bool first_rank = world.rank() == 0;
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);
  job.agree("drift", own.drift ? "yes" : "no");

  // 1 · Input. As in lab 02: each rank reads its own shard. It may be unlike the others'.
  const Shard alike = [&world](std::span<const int64_t> order) {
    return lab02::shard(order, world.rank(), world.size());
  };
  const Shard shard =
      own.shards == "alike"
          ? alike
          : sorted_shard(mean_tokens(setup.data, plan.model.context), world.rank(), world.size());
  Sampler sampler(setup.sequences(), setup.seed, shard);

  // 2 · Model. As in lab 02, all ranks start from the same weights; then the replicas diverge.
  LlamaStage model(setup.model, StageSpan::whole(setup.model), setup.device,
                   setup.seed + static_cast<uint64_t>(world.rank()));
  lab02::broadcast_parameters(model, world);
  const auto optimizer = make_optimizer(plan, model, functions.adam);
  const size_t sequences_here = shard(epoch_order(setup.sequences(), setup.seed, 0)).size();
  const double share = lab03::share_of(static_cast<double>(sequences_here), world);
  const auto validate = [&] {
    return validation_loss(model, setup.data, plan, functions.loss, {.replicas = &world});
  };

  // 3 · Loop. Changed: between two averages no rank waits for any other. The ranks agree on whether
  // to go on only after an average, so that is where Ctrl-C takes effect.
  TrainingRun run(plan, {model, *optimizer, sampler, setup.tokenizer, setup.data, validate}, &job);
  const LearningRate learning_rate = plan.learning_rates();
  double round_loss = 0.0;  // sum over this rank's targets since the last average
  int64_t round_targets = 0;
  uint64_t sent = 0;
  const int64_t first_step = run.begin();
  std::ofstream drifts;
  if (own.drift && first_rank) drifts.open(run.folder() / "drift.tsv", std::ios::app);
  bool goes_on = run.goes_on(first_step);
  for (int64_t step = first_step; goes_on; ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();

    // 4 · Aggregation. Changed: of the weights, every k steps and at the end of the run.
    // 5 · Loss. As before: each rank's own, over its own microbatches.
    const bool last = step == plan.steps;
    const lab03::Aggregation aggregation{.every = last ? 1 : own.every, .share = share};
    const uint64_t sent_before = bytes_sent(world);
    const double own_loss =
        lab03::train_step(model, *optimizer, microbatches, functions.loss, learning_rate.at(step),
                          plan.clip, step, aggregation, world);
    sent += bytes_sent(world) - sent_before;
    round_loss += own_loss * static_cast<double>(target_count(microbatches));
    round_targets += target_count(microbatches);
    if (own.drift) {
      const double apart = lab03::drift(model.parameters(), share, world);
      if (first_rank) drifts << fmt::format("{}\t{:.6g}\n", step, apart) << std::flush;
      require(drifts.good(), "cannot write drift.tsv in {}", run.folder().string());
    }
    if (!last && !lab03::aggregation_due(step, aggregation.every)) continue;

    // 6 · Metrics. Changed: once a round, over all its steps and all ranks. Now all replicas are
    // equal, so there is one model to validate.
    const double loss = round_targets > 0 ? round_loss / static_cast<double>(round_targets) : 0.0;
    run.record(step, lab02::average_loss(loss, round_targets, world));
    round_loss = 0.0;
    round_targets = 0;

    // 7 · Checkpoint. Changed: it holds the averaged weights, but only rank 0's moments. A resumed
    // run gives these to all ranks, so it continues almost as if it had never stopped.
    if (run.checkpoint_due(step)) run.save_checkpoint();
    goes_on = run.goes_on(step + 1);
  }

  run.finish();
  if (run.exit_code() == 0 && first_rank) {
    fmt::print("averages    {:.3g} MB per step put into all_reduce by each rank\n",
               static_cast<double>(sent) / 1e6 / static_cast<double>(plan.steps + 1 - first_step));
    if (own.drift) fmt::print("drift       {}\n", display_path(run.folder() / "drift.tsv"));
  }
  run.tell_story();
  return run.exit_code();
}

int start(int argc, char** argv) {
  OwnOptions own;
  const auto add_options = [&own](CommandLine& line) {
    line.add("--every", own.every, "K", "steps from one average of the weights to the next (k)")
        .within(1, 1'000'000'000)
        .shows_default()
        .kept();
    line.group("Data");
    line.add("--shards", own.shards, "",
             "how sequences are dealt: alike, as in lab 02; or by-vocabulary, sorted, so that the "
             "ranks' data differ")
        .one_of({"alike", "by-vocabulary"})
        .shows_default()
        .kept();
    line.group("Run");
    line.add_flag("--drift", own.drift,
                  "measure in every step how far apart the replicas are; costs as much traffic as "
                  "an average in every step");
  };
  const auto settle = [&own](RunPlan& plan) {
    // There is one model to validate or save only right after an average.
    for (int64_t* every : {&plan.validate_every, &plan.checkpoint_every})
      *every = (*every + own.every - 1) / own.every * own.every;
  };
  const RunPlan plan = settle_plan(
      argc, argv,
      {.about = "Trains a LLaMA on several ranks, which average their weights every k steps.",
       .run_name = "aggregation",
       .division = Division::kReplicas,
       .batch = 1,  // a sequence for each rank
       .add_options = add_options,
       .settle = settle});
  return run_program(plan, argc, argv,
                     [&](Job& job, const RunPlan& settled) { return train(job, settled, own); });
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
