// Lab 07 · every rank has a number; all of them print the same sorted list. This program is given;
// what it calls from allreduce.h is yours.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/rendezvous/rank_environment.h"
#include "labs/07_allreduce/allreduce.h"

namespace {

int start(int argc, char** argv) {
  lab::LaunchOptions launch;
  lab::CommandLine app("Sorts the numbers of all ranks.");
  lab::add_launch_options(app, launch);
  app.read(argc, argv);
  if (lab::is_launcher(launch)) return lab::launch_ranks(launch, argc, argv);

  lab::Job job(lab::read_rank_environment(launch));
  const auto number = static_cast<float>((job.world().rank() * 7 + 3) % 5);
  fmt::print("mine is {}; sorted: {}\n", number,
             fmt::join(lab07::sorted_numbers(number, job.world()), " "));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
