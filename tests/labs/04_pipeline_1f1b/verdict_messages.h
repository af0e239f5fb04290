// Judging what travelled between the stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/grading/verdict.h"

namespace lab04 {

/// Which way through the stages.
enum class Way { kForward, kBackward };

/// Ends the test as failed unless each stage has sent one message a pass to the next one on its
/// way, of `pass_bytes` together, and no rank anything else. To be called when the numbers are
/// known to be right.
void expect_messages(const std::vector<lab::grading::Parcel>& results, Way way, uint64_t passes,
                     uint64_t pass_bytes);

/// The same of training steps, which go both ways. `clipped`: another message to the next stage and
/// a few bytes more may travel in each, by whatever verb.
void expect_step_messages(const std::vector<lab::grading::Parcel>& results, uint64_t steps,
                          uint64_t way_bytes, bool clipped);

/// Bytes of the hidden states of B sequences of T tokens.
uint64_t hidden_bytes(int64_t batch, int64_t length);

}  // namespace lab04
