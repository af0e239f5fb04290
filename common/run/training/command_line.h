// The command line of a training program; with --resume, what it leaves open comes from a
// checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/run/options/options.h"

namespace CLI {
class App;
}

namespace lab {

/// A program's description and defaults.
struct ProgramInfo {
  std::string about;  // first line of --help
  std::string run_name = "train";
  int64_t batch = 3;               // default of --batch
  int64_t steps = 700;             // default of --steps
  int64_t checkpoint_every = 200;  // default of --checkpoint-every
  /// Adds the program's own options; may be empty.
  std::function<void(CLI::App&)> add_options = {};
  /// Those of them that decide what a run computes: a resumed run takes them from its checkpoint.
  std::vector<std::string> kept = {};
  /// Those that a resumed run takes from its checkpoint unless they are given again.
  std::vector<std::string> carried = {};
};

/// Reads the command line. Throws HelpRequested for --help, and UsageError for unknown,
/// contradictory or impossible options. With --resume, options that are not given are those that
/// the run was started with; contradicting one that decides what is computed is an error. May be
/// given again: --steps, --threads, --device, --precision, --comm, folders, how often to validate
/// and save, and the program's `carried` options. So a run can continue on another machine, and
/// without its GPU, with --device cpu --precision float32.
TrainOptions parse_train_options(int argc, const char* const* argv, const ProgramInfo& info);

}  // namespace lab
