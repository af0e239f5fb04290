// What other launchers tell the ranks they start, in their environment variables.
#pragma once

#include <optional>
#include <string>

#include "common/run/rendezvous/rank_environment.h"

namespace lab {

inline constexpr const char* kRankVariables = "RANK and WORLD_SIZE";

/// A rank's place according to one launcher's variables.
struct LauncherClaim {
  std::string source = "";  // kRankVariables, "mpirun", "srun", or "command line"
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  bool all_local = false;        // certainly all ranks are on one machine
  std::string master_addr = "";  // "": unknown
  std::string job = "";          // identifies the job, the same on all its ranks; "": none
};

/// RANK and WORLD_SIZE. Throws UsageError if RANK is set and WORLD_SIZE is not.
std::optional<LauncherClaim> claim_of_rank_variables(const GetVariable& variable);

/// Open MPI's OMPI_COMM_WORLD_*; PMI_* of MPICH and its relatives.
std::optional<LauncherClaim> claim_of_mpirun(const GetVariable& variable);

/// SLURM_* of a task that srun started. The shell of salloc or a batch script has many of the same
/// variables (SLURM_PROCID=0, SLURM_NTASKS=8), but is not a step: there is no claim.
std::optional<LauncherClaim> claim_of_srun(const GetVariable& variable);

/// The first host of Slurm's short form: "node003" of "node[003-005,007],login1".
std::string first_host(const std::string& nodes);

/// A variable that is a whole number; empty if it is not set. Throws UsageError for other text.
std::optional<int64_t> integer_variable(const GetVariable& variable, const char* name);

/// A variable's text; "" if it is not set.
std::string text_variable(const GetVariable& variable, const char* name);

}  // namespace lab
