// One wave of a pipeline: run by an executor, judged on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "tests/labs/05_microbatches/verdict_parts.h"

namespace lab05 {

/// The targets of the step, more than any wave has, as if others were to follow.
inline constexpr int64_t kStepTargets = 200;

/// In what microbatches of a wave differ, besides their tokens.
enum class Microbatches { kAlike, kTargets, kShapes };

struct WaveCase {
  lab::Schedule schedule;
  Microbatches differ_in = Microbatches::kAlike;
  float leftover = 0;  // in every gradient before

  std::vector<lab::TokenBatch> microbatches() const;
  /// Of those microbatches. Computed once for all cases.
  Parts parts() const;
  size_t ranks() const { return schedule.stages.size(); }
  /// One parcel a rank.
  std::vector<lab::grading::Parcel> inputs() const;
};

std::vector<lab::grading::Parcel> run_wave(const WaveCase& c,
                                           const lab::grading::GroupOptions& options);

// Each returns what is wrong, in words; empty if it is as it should be.

/// That exactly the schedule's messages were sent and received, with their tags.
std::string wrong_messages(const std::vector<lab::grading::Parcel>& results, const WaveCase& c);
/// That the loss was called where and for what it should be.
std::string wrong_calls(const std::vector<lab::grading::Parcel>& results, const WaveCase& c);
/// That no pass and no send begins before an earlier send that is not posted is done. Recvs may
/// begin earlier than their place, so they are not asked about.
std::string wrong_waits(const std::vector<lab::grading::Parcel>& results, const WaveCase& c);
/// That as many activations were kept as the schedule implies, and none is left.
std::string wrong_memory(const std::vector<lab::grading::Parcel>& results, const WaveCase& c);

/// Runs it, and ends the test as failed unless messages, calls of the loss, gradients, losses,
/// memory and waiting are right on all ranks.
void expect_wave(const WaveCase& c, const lab::grading::GroupOptions& options);

/// That a wave whose simpler form is right is right as well; else the message begins with `why`.
/// Both have the same microbatches.
void expect_wave_like(const WaveCase& simple, const WaveCase& c, const std::string& why,
                      const lab::grading::GroupOptions& options);

}  // namespace lab05
