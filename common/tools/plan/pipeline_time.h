// How long a pipeline takes: schedules, and when each stage is done.
#pragma once

#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/simulate.h"

namespace lab {

enum class PassOrder { kGpipe, kOneFOneB };

/// GPipe: all forwards, then all backwards. 1F1B: stage s of p runs min(m, p-1-s) forwards ahead
/// (warm-up), then a forward and a backward in turn (steady state), then the backwards that are
/// left (cool-down). Narayanan et al., "Efficient large-scale language model training on GPU
/// clusters using Megatron-LM" (2021), section 2.2.
Schedule pass_plan(PassOrder order, int stages, int microbatches);

/// Microbatches that stage s of p holds at most: m under GPipe, min(m, p-s) under 1F1B.
int most_in_flight(PassOrder order, int stage, int stages, int microbatches);

/// When each stage has done its last backward, by `simulate`; no stage is held up by messages. Of a
/// step of more than 8p microbatches, 8p are simulated; each further one is assumed to take as long
/// as those between 4p and 8p did on average, because the pattern repeats by then. `cores` > 0: the
/// stages share that many (ends_on_shared_cores). `costs`: one per stage.
std::vector<double> stage_ends(PassOrder order, int microbatches,
                               const std::vector<StageCosts>& costs, double cores = 0);

}  // namespace lab
