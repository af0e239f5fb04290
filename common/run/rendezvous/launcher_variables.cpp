// Variables of torchrun, mpirun and srun.
#include "common/run/rendezvous/launcher_variables.h"

#include "common/error.h"
#include "common/parse_number.h"

namespace lab {
namespace {

// Slurm uses numbers above this for its own steps: batch script, interactive shell.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

int int_variable(const GetVariable& variable, const char* name, int otherwise) {
  const auto value = integer_variable(variable, name);
  if (!value) return otherwise;
  if (*value < -1 || *value > INT32_MAX)
    throw UsageError(fmt::format("{}={}: no such rank or number of ranks", name, *value));
  return static_cast<int>(*value);
}

/// All digits and names of a bracket up to its first comma or dash.
std::string first_of_bracket(const std::string& inside) {
  return inside.substr(0, inside.find_first_of(",-"));
}

}  // namespace

std::string text_variable(const GetVariable& variable, const char* name) {
  const char* text = variable(name);
  return text == nullptr ? "" : text;
}

std::optional<int64_t> integer_variable(const GetVariable& variable, const char* name) {
  const std::string text = text_variable(variable, name);
  if (text.empty()) return std::nullopt;
  const auto value = parse_number<int64_t>(text);
  if (!value)
    throw UsageError(fmt::format("{}='{}' in the environment is not a whole number", name, text));
  return value;
}

std::optional<LauncherClaim> claim_of_rank_variables(const GetVariable& variable) {
  if (!integer_variable(variable, "RANK")) return std::nullopt;
  if (!integer_variable(variable, "WORLD_SIZE"))
    throw UsageError("the environment has RANK, but not WORLD_SIZE: set both or neither");
  LauncherClaim claim{.source = kRankVariables};
  claim.rank = int_variable(variable, "RANK", 0);
  claim.world_size = int_variable(variable, "WORLD_SIZE", 1);
  claim.local_rank = int_variable(variable, "LOCAL_RANK", claim.rank);
  claim.all_local = int_variable(variable, "LOCAL_WORLD_SIZE", 0) == claim.world_size;
  return claim;
}

std::optional<LauncherClaim> claim_of_mpirun(const GetVariable& variable) {
  struct Names {
    const char* rank;
    const char* size;
    const char* local_rank;
    const char* local_size;
    const char* job;
  };
  constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMIX_NAMESPACE"};
  constexpr Names kHydra{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_PORT"};
  for (const Names& names : {kOpenMpi, kHydra}) {
    const auto rank = integer_variable(variable, names.rank);
    const auto size = integer_variable(variable, names.size);
    if (!rank || !size) continue;
    LauncherClaim claim{.source = "mpirun"};
    claim.rank = int_variable(variable, names.rank, 0);
    claim.world_size = int_variable(variable, names.size, 1);
    claim.local_rank = int_variable(variable, names.local_rank, claim.rank);
    claim.all_local = int_variable(variable, names.local_size, 0) == claim.world_size;
    claim.job = text_variable(variable, names.job);
    return claim;
  }
  return std::nullopt;
}

std::optional<LauncherClaim> claim_of_srun(const GetVariable& variable) {
  const auto step = integer_variable(variable, "SLURM_STEP_ID");
  const auto rank = integer_variable(variable, "SLURM_PROCID");
  if (!step || *step < 0 || *step >= kFirstSpecialStep || !rank) return std::nullopt;
  LauncherClaim claim{.source = "srun"};
  claim.rank = int_variable(variable, "SLURM_PROCID", 0);
  // For the step; the job may have room for more.
  claim.world_size =
      int_variable(variable, "SLURM_STEP_NUM_TASKS", int_variable(variable, "SLURM_NTASKS", 1));
  claim.local_rank = int_variable(variable, "SLURM_LOCALID", claim.rank);
  const int nodes =
      int_variable(variable, "SLURM_STEP_NUM_NODES", int_variable(variable, "SLURM_NNODES", 0));
  claim.all_local = nodes == 1;
  std::string hosts = text_variable(variable, "SLURM_STEP_NODELIST");
  if (hosts.empty()) hosts = text_variable(variable, "SLURM_JOB_NODELIST");
  claim.master_addr = first_host(hosts);  // rank 0 is there; srun itself may be elsewhere
  if (claim.master_addr.empty())
    claim.master_addr = text_variable(variable, "SLURM_LAUNCH_NODE_IPADDR");
  claim.job = fmt::format("{}.{}", text_variable(variable, "SLURM_JOB_ID"), *step);
  return claim;
}

std::string first_host(const std::string& nodes) {
  std::string host;
  size_t at = 0;
  while (at < nodes.size() && nodes[at] != ',') {
    if (nodes[at] != '[') {
      host += nodes[at++];
      continue;
    }
    const size_t end = nodes.find(']', at);
    if (end == std::string::npos) return "";
    host += first_of_bracket(nodes.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return host;
}

}  // namespace lab
