// A rank program: reads a parcel, runs a scenario, writes a parcel.
#include "common/grading/rank_main.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <fstream>
#include <thread>

#include "common/tensor/todo.h"

namespace lab::grading {
namespace {

Parcel with_outcome(Parcel parcel, const char* outcome, const std::string& message) {
  parcel.set_text(kOutcomeEntry, outcome);
  parcel.set_text(kMessageEntry, message);
  return parcel;
}

/// The scenario's result, or in its place the exception that it ended with.
Parcel run(Scenario scenario, const Parcel& input) {
  try {
    return with_outcome(scenario(input), kReturnedOutcome, "");
  } catch (const NotImplemented& error) {
    return with_outcome({}, kNotImplementedOutcome, error.what());
  } catch (const std::exception& error) {
    return with_outcome({}, kErrorOutcome, error.what());
  } catch (...) {
    return with_outcome({}, kErrorOutcome, "an exception that is not a std::exception");
  }
}

bool debugger_is_attached() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("TracerPid:")) return std::stoi(line.substr(10)) != 0;
  return false;
}

void wait_for_debugger() {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // else only a parent may attach, on many systems
  while (!debugger_is_attached()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

int rank_main(int argc, char** argv, const std::map<std::string, Scenario>& scenarios) {
  CLI::App app("Runs one rank of a test. Tests start it; by hand it is of use in a debugger.");
  std::string scenario;
  std::filesystem::path input;
  std::filesystem::path result;
  bool wait = false;
  app.add_option("--scenario", scenario, "What to run")->required();
  app.add_option("--in", input, "File with its input")->required();
  app.add_option("--out", result, "File for its result")->required();
  app.add_flag("--wait-for-debugger", wait, "Do nothing until a debugger is attached");
  CLI11_PARSE(app, argc, argv);

  const auto found = scenarios.find(scenario);
  if (found == scenarios.end()) {
    fmt::print(stderr, "error: this rank program has no scenario '{}'\n", scenario);
    return 2;
  }
  if (wait) wait_for_debugger();
  try {
    const Parcel parcel = run(found->second, Parcel::read(input));
    parcel.write(result);
    return parcel.text(kOutcomeEntry) == kReturnedOutcome ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return kParcelFailed;
  }
}

}  // namespace lab::grading
