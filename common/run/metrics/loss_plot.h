// The loss curve of a run as a picture.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/run/metrics/metrics.h"

namespace lab {

/// Round numbers from 0 to at most `high` > 0, as far apart as tick_distance says for `count`
/// parts.
std::vector<double> round_ticks(double high, int count);

/// A self-contained SVG: the training loss of every step and its running mean, and the validation
/// losses. Long runs are thinned out to keep the file small. `title` may be any text.
std::string loss_plot_svg(std::span<const StepRecord> records, const std::string& title);

}  // namespace lab
