// train_step, with all that it hands on on record: task 6.
#include <fmt/format.h>

#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/02_gradient_allreduce/step_log.h"
#include "tests/labs/06_hybrid_2x3/gradient_log.h"
#include "tests/labs/06_hybrid_2x3/rank_mesh.h"
#include "tests/labs/06_hybrid_2x3/rank_scenarios.h"
#include "tests/labs/pipeline/oracle.h"

namespace lab06 {

using lab::ProcessGroup;
using lab::grading::Parcel;

Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = mesh_of(input, world);
  lab::LlamaStage stage = stage_of(mesh);
  const lab::Schedule schedule = schedule_of(input);
  const std::vector<lab::TokenBatch> microbatches = microbatches_of(input);
  const LossFunction loss = lab01::causal_lm_loss;
  lab02::RecordingOptimizer optimizer(
      pipeline_tests::make_optimizer(input.text("optimizer"), stage.parameters().numel()));

  Parcel result;
  for (int step = 0; step < int_of(input, "steps"); ++step) {
    const auto entry = [&](const char* name) { return fmt::format("{}.{}", name, step); };
    optimizer.clear();
    lab02::step_log() = {};
    gradient_log() = {.schedule = &schedule, .microbatches = microbatches};
    const uint64_t before = last_operation(world);
    result.set(entry("loss"), train_step(stage, optimizer, schedule, microbatches, loss,
                                         static_cast<float>(input.number("learning_rate")),
                                         input.number("max_norm"), mesh));
    require_nothing_pending(world, "train_step");
    const GradientLog& log = gradient_log();
    result.set_text(entry("events"), lab02::step_log().events);
    result.set(entry("returned"), log.returned);
    std::vector<double> own = operations_of(world, before, log.before);
    const std::vector<double> behind = operations_of(world, log.behind);
    own.insert(own.end(), behind.begin(), behind.end());
    result.set(entry("operations"), own);
    if (!optimizer.updates().empty()) {
      result.set(entry("gradients"),
                 pipeline_tests::packed(stage, optimizer.updates()[0].gradients));
      result.set(entry("rate"), optimizer.updates()[0].learning_rate);
    }
    result.set(entry("weights"), pipeline_tests::packed(stage, stage.parameters()));
  }
  return result;
}

}  // namespace lab06
