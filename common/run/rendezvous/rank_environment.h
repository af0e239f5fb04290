// RankEnvironment: which rank of which job this process is, according to command line and
// environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

namespace lab {

class CommandLine;

/// The command-line options about ranks. -1, 0 and "": not given.
struct LaunchOptions {
  int ranks = 0;  // --ranks N: this process starts N local ranks and watches them
  /// --nnodes N, --node-rank K: `ranks` is the number of ranks on all N hosts together; this
  /// process starts those of host K. Hosts are numbered from 0; host 0 has `master_addr`.
  int nnodes = 0;
  int node_rank = -1;
  int rank = -1;  // --rank, --world-size: this process is one rank of a job started by hand
  int world_size = 0;
  std::string master_addr;  // where rank 0 is, 127.0.0.1 by default
  int master_port = 0;
  std::string store;  // an empty folder that all ranks see, in place of master_addr and port
  std::string interface_addr;  // --bind: the address of this machine that other ranks connect to
  double timeout_s = 600;      // of each wait
};

/// Whether the ranks to be started are those of one of several hosts.
inline bool has_several_hosts(const LaunchOptions& options) { return options.nnodes > 1; }

/// Adds the options above to a program's command line, in the group "Ranks".
void add_launch_options(CommandLine& line, LaunchOptions& options);

/// One rank's place in its job. Ranks on one machine are numbered by local_rank.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;
  std::string store_folder;  // if not empty: a file store in place of address and port
  std::string
      bind_addr;  // this rank listens there for messages; "": the address towards master_addr
  /// By the launcher or test harness, which then also judges the job; else rank 0 does both.
  bool store_is_served = false;
  std::chrono::milliseconds timeout{600'000};
};

using GetVariable = std::function<const char*(const char*)>;

/// Reads options, then variables: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT (torchrun
/// and this workbook's launcher), OMPI_COMM_WORLD_* and PMI_* (mpirun), SLURM_* (srun). With none
/// of them: rank 0 of 1. Throws UsageError (common/error.h), in one line, for values that are
/// out of range, incomplete or contradictory: world size 0, rank >= size, --rank different from
/// RANK.
///
/// Without MASTER_ADDR, it is 127.0.0.1 if all ranks are on one machine, or the first host of
/// srun's list, else an error. Without MASTER_PORT, it is kDefaultMasterPort, or under mpirun and
/// srun a port derived from the job's number.
///
/// torchrun uses MASTER_PORT for its own store (TORCHELASTIC_USE_AGENT_STORE=True), which speaks
/// another protocol: the port is then derived from MASTER_PORT, the run id and the restart count.
/// And since torchrun sets MASTER_ADDR to this machine's name even if all ranks are local, that is
/// replaced by 127.0.0.1.
RankEnvironment read_rank_environment(const LaunchOptions& options,
                                      const GetVariable& variable = std::getenv);

/// True in a process that launches ranks rather than being one: --ranks N was given, N > 1, and no
/// launcher (this one or another) has started this process as one of several. Throws UsageError if
/// --ranks contradicts the environment, or if --nnodes is given without it.
bool is_launcher(const LaunchOptions& options, const GetVariable& variable = std::getenv);

/// How many ranks the job has: as many as were started, or as --ranks will start; 0 if unknown.
int ranks_wanted(const LaunchOptions& options);

inline constexpr uint16_t kDefaultMasterPort = 29500;
/// Derived ports are in [kFirstDerivedPort, kFirstDerivedPort + kDerivedPorts): below those that
/// Linux gives to outgoing connections, 32768 and up.
inline constexpr uint16_t kFirstDerivedPort = 20000;
inline constexpr uint16_t kDerivedPorts = 9000;

/// The variable of this workbook's own launcher and harness: "1" if they serve the store.
inline constexpr const char* kStoreServedVariable = "LAB_STORE_SERVED";

}  // namespace lab
