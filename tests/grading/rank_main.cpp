// A rank program: reads a parcel, runs a scenario, writes a parcel.
#include "tests/grading/rank_main.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "common/run/launch/job.h"
#include "common/run/options/command_line.h"
#include "common/todo.h"
#include "tests/grading/implementation.h"
#include "tests/grading/operations.h"
#include "tests/grading/rank_files.h"

namespace lab::grading {
namespace {

namespace fs = std::filesystem;

/// Keeps the marker of rank_files.h for as long as it lives.
class InScenario {
 public:
  explicit InScenario(const fs::path& result_file) : marker_(in_scenario_marker(result_file)) {
    std::ofstream(marker_).flush();
  }
  ~InScenario() {
    std::error_code ignored;
    fs::remove(marker_, ignored);
  }
  InScenario(const InScenario&) = delete;
  InScenario& operator=(const InScenario&) = delete;

 private:
  fs::path marker_;
};

Parcel with_outcome(Parcel parcel, const char* outcome, const std::string& message) {
  parcel.set_text(kOutcomeEntry, outcome);
  parcel.set_text(kMessageEntry, message);
  return parcel;
}

/// What a rank had returned before it failed.
Parcel returned_before(const fs::path& file) {
  return fs::exists(file) ? Parcel::read(file) : Parcel();
}

/// What `body` returns, or the exception that it ended with beside what is in `file` already.
template <typename Body>
Parcel run(const fs::path& file, const Body& body) {
  try {
    return with_outcome(body(), kReturnedOutcome, "");
  } catch (const NotImplemented& error) {
    return with_outcome(returned_before(file), kNotImplementedOutcome, error.what());
  } catch (const BrokenOff& error) {
    return with_outcome(returned_before(file), kBrokenOffOutcome, error.what());
  } catch (const std::exception& error) {
    return with_outcome(returned_before(file), kErrorOutcome, error.what());
  } catch (...) {
    return with_outcome(returned_before(file), kErrorOutcome,
                        "an exception that is not a std::exception");
  }
}

using Call = std::function<Parcel(const std::string& scenario, const Parcel& input)>;

/// The scenario "calls". What has been returned is in `file` before the next call begins: a rank
/// that is ended later keeps it.
Parcel run_calls(const Parcel& input, const fs::path& file, const Call& call) {
  Parcel results;
  const auto calls = static_cast<size_t>(input.number(kCalls));
  for (size_t k = 0; k < calls; ++k) {
    const Parcel arguments = input.part(call_entry(k));
    const Parcel result = call(arguments.text("scenario"), arguments);
    results.set(call_entry(k), result);
    if (k + 1 == calls) break;
    Parcel returned;
    returned.set(call_entry(k), result);
    with_outcome(returned, kBrokenOffOutcome, "").append(file);
  }
  return results;
}

/// Calls a group scenario and notes its operations; `between` is where ranks meet afterwards.
Parcel run_group_call(GroupScenario scenario, const Parcel& input, ProcessGroup& world,
                      ProcessGroup& between) {
  const uint64_t last = last_operation(world.recorder());
  Parcel result = scenario(input, world);
  note_operations(world.recorder(), last, result);
  between.barrier();
  return result;
}

Parcel run_group_calls(const Scenarios& scenarios, const Parcel& input, const fs::path& file,
                       ProcessGroup& world) {
  ProcessGroup between = world.split(0, world.rank(), kBetweenCalls);
  return run_calls(input, file, [&](const std::string& scenario, const Parcel& arguments) {
    return run_group_call(scenarios.group.at(scenario), arguments, world, between);
  });
}

/// An input. Its file goes before any code that is judged runs: that could read other ranks'
/// inputs, or start this program once more with an input of its own.
Parcel take_input(const fs::path& file) {
  Parcel input = Parcel::read(file);
  fs::remove(file);
  return input;
}

/// "1,4b" -> {"1", "4b"}
std::set<std::string> words_of(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

/// This process is one rank. The result is written before the rank leaves the job: a rank that
/// waits for it in vain must not take it away.
int run_rank(const Scenarios& scenarios, const std::string& scenario, const Parcel& arguments,
             const fs::path& result) {
  std::optional<InScenario> in_scenario(result);
  std::unique_ptr<Job> job;
  const Parcel parcel = run(result, [&] {
    if (scenario == kCalls && std::getenv("MASTER_ADDR") == nullptr)
      return run_calls(arguments, result,
                       [&](const std::string& name, const Parcel& input_of_call) {
                         return scenarios.alone.at(name)(input_of_call);
                       });
    const auto alone = scenarios.alone.find(scenario);
    if (alone != scenarios.alone.end()) return alone->second(arguments);
    job = std::make_unique<Job>(read_rank_environment({}));
    if (scenario == kCalls) return run_group_calls(scenarios, arguments, result, job->world());
    return scenarios.group.at(scenario)(arguments, job->world());
  });
  in_scenario.reset();
  parcel.write(result);
  return parcel.text(kOutcomeEntry) == kReturnedOutcome ? 0 : 1;
}

SimulationOptions options_from(const std::string& text, int ranks) {
  const nlohmann::json json = nlohmann::json::parse(text);
  SimulationOptions options{.ranks = ranks,
                            .seed = json.at("seed"),
                            .buffered_bytes = json.at("buffered_bytes"),
                            .max_delay = json.at("max_delay"),
                            .shuffle_ranks = json.at("shuffle_ranks")};
  if (json.contains("death"))
    options.death = {.rank = json["death"].at(0),
                     .operation = json["death"].at(1),
                     .breaks_off = json["death"].at(2)};
  if (json.contains("slow_link"))
    options.slow_link = {.from = json["slow_link"].at(0), .to = json["slow_link"].at(1)};
  if (json.contains("costs")) {
    const nlohmann::json& costs = json["costs"];
    options.costs = {.inside = {.alpha = costs.at(0), .beta = costs.at(1)},
                     .between = {.alpha = costs.at(2), .beta = costs.at(3)},
                     .ranks_per_host = costs.at(4),
                     .gamma = costs.at(5)};
  }
  return options;
}

std::vector<Parcel> take_inputs(const fs::path& folder) {
  std::vector<Parcel> inputs;
  for (int rank = 0; fs::exists(rank_input_file(folder, rank)); ++rank)
    inputs.push_back(take_input(rank_input_file(folder, rank)));
  return inputs;
}

/// This process is all ranks.
int simulate_ranks(const Scenarios& scenarios, const std::string& scenario,
                   const std::string& options, const std::vector<Parcel>& arguments,
                   const fs::path& result) {
  std::vector<std::optional<Parcel>> results(arguments.size());
  std::list<InScenario> in_scenario;
  for (size_t rank = 0; rank < results.size(); ++rank)
    in_scenario.emplace_back(rank_result_file(result, static_cast<int>(rank)));
  const SimulationOptions simulation = options_from(options, static_cast<int>(arguments.size()));
  const SimulationReport report = simulate(simulation, [&](ProcessGroup& world) {
    const auto rank = static_cast<size_t>(world.rank());
    use_copy(world.rank());
    try {
      results[rank] = with_outcome(
          scenario == kCalls ? run_group_calls(scenarios, arguments[rank],
                                               rank_result_file(result, world.rank()), world)
                             : scenarios.group.at(scenario)(arguments[rank], world),
          kReturnedOutcome, "");
    } catch (const NotImplemented& error) {
      results[rank] = with_outcome(returned_before(rank_result_file(result, world.rank())),
                                   kNotImplementedOutcome, error.what());
      throw;  // for the others it is gone
    } catch (const BrokenOff& error) {
      // Otherwise the job is diagnosed, which says more.
      if (simulation.death && simulation.death->breaks_off)
        results[rank] = with_outcome({}, kBrokenOffOutcome, error.what());
      throw;
    }
  });

  in_scenario.clear();
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (!results[rank]) {
      const bool waits = report.diagnosis && report.snapshots[rank].waiting() != nullptr;
      results[rank] =
          with_outcome(returned_before(rank_result_file(result, static_cast<int>(rank))),
                       waits ? kDiagnosedOutcome : kErrorOutcome,
                       waits ? report.diagnosis->text() : report.errors[rank]);
      if (report.diagnosis)
        results[rank]->set(kUnfinishedCall,
                           unfinished_operations(report.snapshots[rank], report.history[rank]));
    }
    results[rank]->write(rank_result_file(result, static_cast<int>(rank)));
  }
  return 0;  // each rank's file says how it ended
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

std::string call_entry(size_t call) { return fmt::format("call{}", call); }

std::string to_text(const SimulationOptions& options) {
  nlohmann::json json{{"seed", options.seed},
                      {"buffered_bytes", options.buffered_bytes},
                      {"max_delay", options.max_delay},
                      {"shuffle_ranks", options.shuffle_ranks}};
  if (const auto& death = options.death)
    json["death"] = {death->rank, death->operation, death->breaks_off};
  if (options.slow_link) json["slow_link"] = {options.slow_link->from, options.slow_link->to};
  if (const auto& costs = options.costs)
    json["costs"] = {costs->inside.alpha, costs->inside.beta,    costs->between.alpha,
                     costs->between.beta, costs->ranks_per_host, costs->gamma};
  return json.dump();
}

int rank_main(int argc, char** argv, const Scenarios& scenarios) {
  CommandLine app("Runs one rank of a test. Tests start it; by hand it is of use in a debugger.");
  std::string scenario;
  fs::path input;
  fs::path result;
  std::string given;
  std::string simulation;
  fs::path implementation;
  bool wait = false;
  app.add("--scenario", scenario, "", "What to run").required();
  app.add("--in", input, "", "File with its input, which is removed").required();
  app.add("--out", result, "", "File for its result").required();
  app.add("--implementation", implementation, "", "Shared object with the lab's functions");
  app.add("--given", given, "", "Tasks whose functions are correct ones: 1,4b");
  app.add("--simulate", simulation, "", "All ranks in this process: how the network behaves");
  app.add_flag("--wait-for-debugger", wait, "Do nothing until a debugger is attached");
  try {
    app.read(argc, argv);
  } catch (const std::exception& error) {  // of the command line, or the text of --help
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }

  if (scenario != kCalls && !scenarios.alone.contains(scenario) &&
      !scenarios.group.contains(scenario)) {
    fmt::print(stderr, "error: this rank program has no scenario '{}'\n", scenario);
    return 2;
  }
  if (wait) wait_for_debugger();
  try {
    const bool simulated = !simulation.empty();
    const std::vector<Parcel> inputs =
        simulated ? take_inputs(input) : std::vector{take_input(input)};
    set_given(words_of(given));
    if (!implementation.empty())
      load_implementation(implementation, static_cast<int>(inputs.size()));
    if (!simulated) return run_rank(scenarios, scenario, inputs[0], result);
    return simulate_ranks(scenarios, scenario, simulation, inputs, result);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return kParcelFailed;
  }
}

}  // namespace lab::grading
