// Shows a step in which messages travel while ranks compute: two rows per rank.
#pragma once

#include <filesystem>
#include <string>

#include "common/pipeline/timeline.h"
#include "common/run/launch/job.h"
#include "common/run/timeline/recorded_timeline.h"

namespace lab {

/// Whether a rank has posted collectives.
bool has_network(const Timeline& timeline);

/// The timeline with a row after every rank that shows the collectives it posted while they travel.
/// Unchanged if there are none.
Timeline with_network_rows(const Timeline& timeline);

/// The longest time that a rank waits in collectives, and the longest that its collectives travel:
/// how much is exposed, out of how much. "exposed     12 ms on ...".
std::string describe_network(const Timeline& timeline);

/// Writes `folder`/timeline.svg and `folder`/trace.json (for ui.perfetto.dev).
void write_timeline(const Timeline& timeline, const std::filesystem::path& folder);
/// Says where they are.
void print_files(const std::filesystem::path& folder);
/// Draws a step on the terminal, in colour if it has any. `title`: the line above the grid.
void print_grid(const Timeline& timeline, const std::string& title);

/// Prints the step in `window` as a grid, with the times above, and writes timeline.svg and
/// trace.json to `folder`. All ranks call it; rank 0 prints and writes.
void show_network_timeline(Job& job, const TimeWindow& window, const std::filesystem::path& folder);

/// The same on the terminal only.
void print_network_timeline(const Timeline& timeline, const std::string& title);

}  // namespace lab
