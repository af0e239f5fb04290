// Variables as launchers set them, and what a process makes of them.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>

#include "common/run/options/main_guard.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

using Variables = std::map<std::string, std::string>;

inline GetVariable from(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

inline RankEnvironment read_variables(const Variables& variables,
                                      const LaunchOptions& options = {}) {
  return read_rank_environment(options, from(variables));
}

inline std::string usage_error(const Variables& variables, const LaunchOptions& options = {}) {
  try {
    const RankEnvironment place = read_variables(variables, options);
    return fmt::format("no error: rank {} of {}", place.rank, place.world_size);
  } catch (const UsageError& error) {
    return error.what();
  }
}

inline LaunchOptions launching(int ranks) {
  LaunchOptions options;
  options.ranks = ranks;
  return options;
}

inline const Variables kSrun{
    {"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "0"},
    {"SLURM_PROCID", "3"},         {"SLURM_STEP_NUM_TASKS", "4"},
    {"SLURM_NTASKS", "8"},         {"SLURM_LOCALID", "1"},
    {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "gpu[003-004],login1"}};
inline const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_NAMESPACE", "1970405377"}};
inline const Variables kBatchScript{
    {"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"},
    {"SLURM_LOCALID", "0"},   {"SLURM_NNODES", "2"}, {"SLURM_JOB_NODELIST", "gpu[003-004]"}};

inline Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

}  // namespace lab
