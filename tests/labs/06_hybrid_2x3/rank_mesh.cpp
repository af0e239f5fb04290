// Mesh, stage, inputs and messages of the scenarios.
#include "tests/labs/06_hybrid_2x3/rank_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/tensor/error.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab06 {

using lab::grading::Parcel;

int int_of(const Parcel& input, const std::string& name) {
  return static_cast<int>(input.number(name));
}

Mesh mesh_of(const Parcel& input, lab::ProcessGroup& world) {
  const int pp = int_of(input, "pp");
  const int pipeline = world.rank() / pp;
  const int stage = world.rank() % pp;
  lab::ProcessGroup stages = world.split(pipeline, stage, fmt::format("pipeline {}", pipeline));
  lab::ProcessGroup replicas =
      world.split(stage, pipeline, fmt::format("replicas of stage {}", stage));
  return {{.pipeline = pipeline, .stage = stage}, std::move(stages), std::move(replicas)};
}

lab::LlamaStage stage_of(const Mesh& mesh) {
  using pipeline_tests::kLayers;
  const int stage = mesh.place.stage;
  const int stages = mesh.pipeline.size();
  return pipeline_tests::make_stage({.first_layer = kLayers * stage / stages,
                                     .last_layer = kLayers * (stage + 1) / stages,
                                     .embeds = stage == 0,
                                     .has_head = stage == stages - 1});
}

lab::Schedule schedule_of(const Parcel& input) {
  const auto plan = input.text("schedule") == "gpipe" ? lab05::gpipe : lab05::one_f_one_b;
  return lab05::with_messages(plan(int_of(input, "pp"), int_of(input, "wave")));
}

std::vector<lab::TokenBatch> microbatches_of(const Parcel& input) {
  std::vector<lab::TokenBatch> batches;
  for (int k = 0; k < int_of(input, "microbatches"); ++k)
    batches.push_back(input.batch(fmt::format("microbatch.{}", k)));
  return batches;
}

uint64_t last_operation(const lab::ProcessGroup& world) {
  uint64_t last = 0;
  for (const lab::OpRecord& record : world.recorder().history()) last = std::max(last, record.id);
  return last;
}

std::vector<double> operations_of(const lab::ProcessGroup& world, uint64_t after, uint64_t last) {
  std::map<uint32_t, double> groups;  // 0: the world, 1: a pipeline, 2: replicas, 3: any other
  for (const lab::GroupRecord& group : world.recorder().snapshot().groups)
    groups[group.id] = group.id == 0                        ? 0.0
                       : group.name.starts_with("pipeline") ? 1.0
                       : group.name.starts_with("replicas") ? 2.0
                                                            : 3.0;
  std::vector<double> numbers;
  for (const lab::OpRecord& record : world.recorder().history())
    if (record.id > after && record.id <= last)
      numbers.insert(
          numbers.end(),
          {static_cast<double>(record.kind), groups[record.group], static_cast<double>(record.peer),
           static_cast<double>(record.tag), static_cast<double>(record.bytes),
           static_cast<double>(record.posted_ns), static_cast<double>(record.done_ns)});
  return numbers;
}

void require_nothing_pending(const lab::ProcessGroup& world, const std::string& function) {
  std::string list;
  for (const lab::OpRecord& record : world.recorder().snapshot().pending)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", lab::op_name(record.kind));
  lab::require(list.empty(),
               "{} has returned, but nobody has waited for {}: keep what isend and irecv return, "
               "and wait for it",
               function, list);
}

}  // namespace lab06
