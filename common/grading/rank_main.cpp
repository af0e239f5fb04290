// A rank program: reads a parcel, runs a scenario, writes a parcel.
#include "common/grading/rank_main.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "common/grading/rank_files.h"
#include "common/io/files.h"
#include "common/launch/job.h"
#include "common/tensor/todo.h"

namespace lab::grading {
namespace {

namespace fs = std::filesystem;

/// Keeps the marker of rank_files.h for as long as it lives.
class InScenario {
 public:
  explicit InScenario(const fs::path& result_file) : marker_(in_scenario_marker(result_file)) {
    write_file(marker_, "");
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

/// What `body` returns, or in its place the exception that it ended with.
template <typename Body>
Parcel run(const Body& body) {
  try {
    return with_outcome(body(), kReturnedOutcome, "");
  } catch (const NotImplemented& error) {
    return with_outcome({}, kNotImplementedOutcome, error.what());
  } catch (const BrokenOff& error) {
    return with_outcome({}, kBrokenOffOutcome, error.what());
  } catch (const std::exception& error) {
    return with_outcome({}, kErrorOutcome, error.what());
  } catch (...) {
    return with_outcome({}, kErrorOutcome, "an exception that is not a std::exception");
  }
}

/// This process is one rank. The result is written before the rank leaves the job: a rank that
/// waits for it in vain must not take it away.
int run_rank(const Scenarios& scenarios, const std::string& scenario, const fs::path& input,
             const fs::path& result) {
  const Parcel arguments = Parcel::read(input);
  std::optional<InScenario> in_scenario(result);
  std::unique_ptr<Job> job;
  const Parcel parcel = run([&] {
    const auto alone = scenarios.alone.find(scenario);
    if (alone != scenarios.alone.end()) return alone->second(arguments);
    job = std::make_unique<Job>(read_rank_environment({}));
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
    options.death = {.rank = json["death"].at(0), .operation = json["death"].at(1)};
  if (json.contains("slow_link"))
    options.slow_link = {.from = json["slow_link"].at(0), .to = json["slow_link"].at(1)};
  return options;
}

/// This process is all ranks.
int simulate_ranks(GroupScenario scenario, const std::string& options, const fs::path& input,
                   const fs::path& result) {
  std::vector<Parcel> arguments;
  while (fs::exists(rank_input_file(input, static_cast<int>(arguments.size()))))
    arguments.push_back(Parcel::read(rank_input_file(input, static_cast<int>(arguments.size()))));

  std::vector<std::optional<Parcel>> results(arguments.size());
  std::list<InScenario> in_scenario;
  for (size_t rank = 0; rank < results.size(); ++rank)
    in_scenario.emplace_back(rank_result_file(result, static_cast<int>(rank)));
  const SimulationReport report =
      simulate(options_from(options, static_cast<int>(arguments.size())), [&](ProcessGroup& world) {
        const auto rank = static_cast<size_t>(world.rank());
        try {
          results[rank] = with_outcome(scenario(arguments[rank], world), kReturnedOutcome, "");
        } catch (const NotImplemented& error) {
          results[rank] = with_outcome({}, kNotImplementedOutcome, error.what());
          throw;  // for the others it is gone
        }
      });

  in_scenario.clear();
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (!results[rank])
      results[rank] = report.diagnosis && report.snapshots[rank].waiting() != nullptr
                          ? with_outcome({}, kDiagnosedOutcome, report.diagnosis->text())
                          : with_outcome({}, kErrorOutcome, report.errors[rank]);
    set_traffic(*results[rank], report.snapshots[rank]);
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

std::string traffic_entry(OpKind kind) { return fmt::format("traffic.{}", op_name(kind)); }

void set_traffic(Parcel& parcel, const RankSnapshot& record) {
  for (size_t kind = 0; kind < kOpKinds; ++kind) {
    const Traffic& traffic = record.traffic[kind];
    parcel.set(
        traffic_entry(static_cast<OpKind>(kind)),
        std::vector{static_cast<double>(traffic.operations), static_cast<double>(traffic.bytes)});
  }
}

std::string to_text(const SimulationOptions& options) {
  nlohmann::json json{{"seed", options.seed},
                      {"buffered_bytes", options.buffered_bytes},
                      {"max_delay", options.max_delay},
                      {"shuffle_ranks", options.shuffle_ranks}};
  if (options.death) json["death"] = {options.death->rank, options.death->operation};
  if (options.slow_link) json["slow_link"] = {options.slow_link->from, options.slow_link->to};
  return json.dump();
}

int rank_main(int argc, char** argv, const Scenarios& scenarios) {
  CLI::App app("Runs one rank of a test. Tests start it; by hand it is of use in a debugger.");
  std::string scenario;
  fs::path input;
  fs::path result;
  std::string simulation;
  bool wait = false;
  app.add_option("--scenario", scenario, "What to run")->required();
  app.add_option("--in", input, "File with its input")->required();
  app.add_option("--out", result, "File for its result")->required();
  app.add_option("--simulate", simulation, "All ranks in this process: how the network behaves");
  app.add_flag("--wait-for-debugger", wait, "Do nothing until a debugger is attached");
  CLI11_PARSE(app, argc, argv);

  if (!scenarios.alone.contains(scenario) && !scenarios.group.contains(scenario)) {
    fmt::print(stderr, "error: this rank program has no scenario '{}'\n", scenario);
    return 2;
  }
  if (wait) wait_for_debugger();
  try {
    if (simulation.empty()) return run_rank(scenarios, scenario, input, result);
    return simulate_ranks(scenarios.group.at(scenario), simulation, input, result);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return kParcelFailed;
  }
}

}  // namespace lab::grading
