// Inputs of training steps.
#include "tests/labs/04_pipeline_1f1b/verdict_step_case.h"

#include <cmath>

#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/04_pipeline_1f1b/verdict_passes.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab04 {
namespace {

using lab::TokenBatch;
using lab::grading::Parcel;

constexpr int64_t kLength = 10;

std::string tokens_entry(int step) { return fmt::format("tokens.{}.0", step); }

Parcel unclipped_run(const StepCase& c) {
  StepCase first = c;
  first.max_norm = 0;
  first.steps = 1;
  return lab::grading::reference("oracle", first.oracle_input());
}

Parcel common_input(const StepCase& c) {
  Parcel input;
  input.set("counts", c.counts);
  input.set("steps", c.steps);
  input.set("microbatches", 1);
  input.set_text("optimizer", c.optimizer);
  input.set("learning_rate", c.learning_rate);
  input.set("max_norm", c.max_norm);
  input.set("leftover", c.leftover);
  return input;
}

}  // namespace

TokenBatch StepCase::batch(int step) const {
  return lab01::random_tokens(lengths, kLength, pipeline_tests::kVocab,
                              70 + static_cast<uint64_t>(step));
}

std::vector<Parcel> StepCase::inputs() const {
  std::vector<Parcel> all(ranks(), common_input(*this));
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const bool reads = rank == 0 || rank + 1 == ranks();  // tokens or targets
    for (int step = 0; step < steps; ++step)
      all[rank].set(tokens_entry(step), reads ? batch(step) : decoy(batch(step), rank));
  }
  return all;
}

Parcel StepCase::oracle_input() const {
  Parcel input = common_input(*this);
  for (int step = 0; step < steps; ++step) input.set(tokens_entry(step), batch(step));
  return input;
}

StepOracle::StepOracle(const StepCase& c)
    : parcel(lab::grading::reference("oracle", c.oracle_input())),
      layout(parcel, c.counts),
      parcel_unclipped(c.max_norm > 0 ? unclipped_run(c) : parcel) {}

Numbers StepOracle::whole(const std::string& entry) const {
  return lab::grading::to_doubles(parcel.tensor(entry));
}

Numbers StepOracle::unclipped() const {
  return lab::grading::to_doubles(parcel_unclipped.tensor("gradients.0"));
}

double norm(const Numbers& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

Numbers clipped(Numbers gradients, double own_norm, double max_norm) {
  if (max_norm > 0 && own_norm > max_norm)
    for (double& g : gradients) g *= max_norm / own_norm;
  return gradients;
}

}  // namespace lab04
