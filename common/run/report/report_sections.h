// The sections of the report. Each is empty if there is nothing to show.
#pragma once

#include <string>

#include "common/run/report/run_report.h"

namespace lab {

/// Loss curves.
std::string learning_section(const RunReport& report);
/// What the model wrote, at most 24 texts.
std::string stories_section(const RunReport& report);
/// Tokens per second and learning rate.
std::string speed_section(const RunReport& report);
/// One step: the grid next to theory, idle time, what ranks spent their time on.
std::string step_section(const RunReport& report);
/// Its grid, a <figure> that is as wide as the page, and scrolls if that is too narrow to read:
/// what each rank did, above what theory predicts, by one clock. Of very many spans the shortest
/// are left out, with a note. Theory begins with the first measured pass.
std::string timeline_grid_html(const StepTimeline& step);
/// Bytes by link.
std::string links_section(const RunReport& report);
/// Memory of each rank by kind.
std::string memory_section(const RunReport& report);
/// The configuration.
std::string facts_section(const RunReport& report);

}  // namespace lab
