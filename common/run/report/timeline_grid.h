// The grid of a step: what each rank did, above what theory predicts, by one clock.
#pragma once

#include <string>

#include "common/run/report/run_report.h"

namespace lab {

/// A <figure> that is as wide as the page, and scrolls if that is too narrow to read. Of very many
/// spans the shortest are left out, with a note. Theory begins with the first measured pass.
std::string timeline_grid_html(const MeasuredStep& step);

}  // namespace lab
