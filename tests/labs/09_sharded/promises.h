// What every training step of lab 09 promises besides lab 02's numbers: memory and traffic.
#pragma once

#include <cstdint>
#include <string>

#include "tests/grading/verdict.h"

namespace lab09 {

/// Elements of the parts of the model that scenarios without passes use, multiples of 64 each.
inline constexpr int64_t kSizes[] = {64, 384, 384, 384, 128};

/// Random numbers for the shard of rank `r` of part `p`; its padding is 0.
lab::Tensor draw_shard(size_t p, size_t r, size_t ranks, double scale, uint64_t seed);

/// Runs training steps of `stage` on `ranks` ranks and judges gradients, losses, weights, memory
/// and traffic of every step; of the first `cases` that draw_cases draws.
void expect_steps(int stage, int ranks, uint64_t seed, const lab::grading::JobOptions& options,
                  size_t cases = 100);
/// Processes send hundreds of messages a step; the other cases run in the simulation.
inline constexpr size_t kCasesOverGloo = 4;
/// All but the large model and the many steps.
inline constexpr size_t kSmallCases = 6;

/// Simulated ranks, or processes; all tasks given except for one.
lab::grading::JobOptions simulated(const std::string& task, uint64_t seed);
lab::grading::JobOptions over_gloo(const std::string& task);

}  // namespace lab09
