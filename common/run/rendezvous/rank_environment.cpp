// Reads options first, then variables; contradictions are errors, not guesses.
#include "common/run/rendezvous/rank_environment.h"

#include <cmath>
#include <utility>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/error.h"
#include "common/run/rendezvous/launcher_variables.h"
#include "common/run/rendezvous/own_address.h"

namespace lab {
namespace {

template <typename... Args>
void require_usage(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

/// FNV-1a: the same on every machine and in every build.
uint16_t derived_port(const std::string& job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<uint16_t>(kFirstDerivedPort + hash % kDerivedPorts);
}

void check_hosts(const LaunchOptions& options) {
  const auto [nnodes, node_rank] = std::pair(options.nnodes, options.node_rank);
  if (nnodes == 0) {
    require_usage(node_rank < 0, "--node-rank {} needs --nnodes: how many hosts there are",
                  node_rank);
    return;
  }
  require_usage(options.rank < 0 && options.world_size == 0,
                "--nnodes starts this host's ranks, --rank and --world-size make this process one "
                "rank: give one or the other");
  require_usage(node_rank < nnodes, "--node-rank {}: with --nnodes {}, hosts are numbered 0 to {}",
                node_rank, nnodes, nnodes - 1);
  if (nnodes == 1) return;
  require_usage(node_rank >= 0, "--nnodes {} needs --node-rank: which of them this host is, from 0",
                nnodes);
  require_usage(!options.master_addr.empty(),
                "--nnodes {} needs --master-addr: host 0's address, the same on every host",
                nnodes);
  require_usage(options.store.empty(),
                "--nnodes {}: the hosts meet at --master-addr; leave out --store", nnodes);
  require_usage(options.ranks % nnodes == 0,
                "{} ranks on --nnodes {}: not the same number on every host; change one",
                options.ranks, nnodes);
}

void check_options(const LaunchOptions& options) {
  require_usage(options.ranks == 0 || (options.rank < 0 && options.world_size == 0),
                "--ranks starts all ranks, --rank and --world-size make this process one of them: "
                "give one or the other");
  check_hosts(options);
  require_usage(
      has_several_hosts(options) || options.ranks == 0 ||
          (options.master_addr.empty() && options.master_port == 0 && options.store.empty()),
      "--ranks starts all ranks on this machine: leave out --master-addr, --master-port "
      "and --store");
  require_usage(options.rank < 0 || options.world_size != 0, "--rank {} needs --world-size",
                options.rank);
  require_usage(options.world_size == 0 || options.rank >= 0, "--world-size {} needs --rank",
                options.world_size);
  require_usage(options.store.empty() || (options.master_addr.empty() && options.master_port == 0),
                "--store replaces --master-addr and --master-port: give one or the other");
  require_usage(options.timeout_s >= 1e-3 && options.timeout_s <= 1e6,
                "--timeout {}: it must lie between 0.001 and 1000000 seconds", options.timeout_s);
  require_usage(options.master_port >= 0 && options.master_port <= 65535,
                "--master-port {}: it must lie between 1 and 65535", options.master_port);
}

void check_place(const std::string& source, int rank, int world_size) {
  require_usage(world_size >= 1, "world size {} ({}): a job has at least one rank", world_size,
                source);
  require_usage(world_size <= kMaxWorldSize, "world size {} ({}): at most {} ranks are possible",
                world_size, source, kMaxWorldSize);
  require_usage(rank >= 0 && rank < world_size,
                "rank {} ({}): with world size {}, ranks are numbered 0 to {}", rank, source,
                world_size, world_size - 1);
}

/// Accepts variables that contradict each other only if one launcher runs inside another.
void check_same_place(const LauncherClaim& claim, const LauncherClaim& other) {
  require_usage(claim.rank == other.rank && claim.world_size == other.world_size,
                "{} says rank {} of {}, but {} says rank {} of {}: unset the variables of one",
                claim.source, claim.rank, claim.world_size, other.source, other.rank,
                other.world_size);
}

std::optional<LauncherClaim> claim_of_environment(const GetVariable& variable) {
  const auto own = claim_of_rank_variables(variable);
  auto outer = claim_of_mpirun(variable);
  if (!outer) outer = claim_of_srun(variable);
  const bool started_within =
      variable("TORCHELASTIC_RUN_ID") != nullptr || variable(kStoreServedVariable) != nullptr;
  if (own) {
    if (outer && outer->world_size > 1 && !started_within) check_same_place(*own, *outer);
    return own;
  }
  if (const auto size = integer_variable(variable, "WORLD_SIZE"); size && !outer)
    throw UsageError("the environment has WORLD_SIZE, but not RANK: set both or neither");
  else if (size && *size != outer->world_size)
    throw UsageError(fmt::format("WORLD_SIZE={} contradicts {}, which has started {} ranks", *size,
                                 outer->source, outer->world_size));
  return outer;
}

/// mpirun and srun may start a single process, which may then be anything.
bool is_single_process(const LauncherClaim& claim) {
  return claim.world_size == 1 && claim.source != kRankVariables;
}

/// The option's claim, checked against the environment's.
LauncherClaim claim_of_options(const LaunchOptions& options,
                               const std::optional<LauncherClaim>& environment) {
  LauncherClaim claim{.source = "command line",
                      .rank = options.rank,
                      .world_size = options.world_size,
                      .local_rank = options.rank};
  if (!environment || is_single_process(*environment)) return claim;
  require_usage(environment->rank == claim.rank && environment->world_size == claim.world_size,
                "--rank {} --world-size {} contradicts the environment: rank {} of {} by {}",
                claim.rank, claim.world_size, environment->rank, environment->world_size,
                environment->source);
  claim.local_rank = environment->local_rank;
  return claim;
}

bool torchrun_has_the_port(const GetVariable& variable) {
  return text_variable(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
}

std::string master_address(const LaunchOptions& options, const LauncherClaim& claim,
                           const GetVariable& variable) {
  const std::string named = text_variable(variable, "MASTER_ADDR");
  const bool local_torchrun = torchrun_has_the_port(variable) && claim.all_local;
  if (!options.master_addr.empty()) {
    require_usage(named.empty() || named == options.master_addr || local_torchrun,
                  "--master-addr {} contradicts MASTER_ADDR={} in the environment",
                  options.master_addr, named);
    return options.master_addr;
  }
  if (local_torchrun) return "127.0.0.1";
  if (!named.empty()) return named;
  if (claim.all_local || (claim.source != "mpirun" && claim.source != "srun")) return "127.0.0.1";
  require_usage(!claim.master_addr.empty(),
                "MASTER_ADDR is not set, and {} has started ranks on several machines: set it to "
                "the address of rank 0's machine",
                claim.source);
  return claim.master_addr;
}

uint16_t master_port(const LaunchOptions& options, const LauncherClaim& claim,
                     const GetVariable& variable) {
  const auto named = integer_variable(variable, "MASTER_PORT");
  require_usage(!named || (*named >= 1 && *named <= 65535),
                "MASTER_PORT={} in the environment: it must lie between 1 and 65535",
                named.value_or(0));
  const bool taken = torchrun_has_the_port(variable);
  if (options.master_port != 0) {
    require_usage(!named || *named == options.master_port || taken,
                  "--master-port {} contradicts MASTER_PORT={} in the environment",
                  options.master_port, named.value_or(0));
    return static_cast<uint16_t>(options.master_port);
  }
  if (taken)
    return derived_port(fmt::format("{} {} {}", named.value_or(0),
                                    text_variable(variable, "TORCHELASTIC_RUN_ID"),
                                    text_variable(variable, "TORCHELASTIC_RESTART_COUNT")));
  if (named) return static_cast<uint16_t>(*named);
  if (claim.source != "mpirun" && claim.source != "srun") return kDefaultMasterPort;
  require_usage(!claim.job.empty(),
                "MASTER_PORT is not set, and {} gives no job number to derive one from: set "
                "it to a port that is free on rank 0's machine",
                claim.source);
  return derived_port(claim.job);
}

}  // namespace

RankEnvironment read_rank_environment(const LaunchOptions& options, const GetVariable& variable) {
  check_options(options);
  auto claim = claim_of_environment(variable);
  if (options.rank >= 0) claim = claim_of_options(options, claim);
  const int size = claim ? claim->world_size : 1;
  require_usage(options.ranks == 0 || !claim || is_single_process(*claim) || options.ranks == size,
                "--ranks {} contradicts the environment: world size {} by {}", options.ranks, size,
                claim ? claim->source : "");

  RankEnvironment result;
  result.timeout = std::chrono::milliseconds(std::llround(options.timeout_s * 1e3));
  if (!claim) return result;
  check_place(claim->source, claim->rank, claim->world_size);
  result.rank = claim->rank;
  result.world_size = claim->world_size;
  result.local_rank = claim->local_rank;
  result.store_is_served = text_variable(variable, kStoreServedVariable) == "1";
  result.store_folder = options.store;
  result.bind_addr = options.interface_addr;
  if (result.world_size > 1 && result.store_folder.empty()) {
    result.master_addr = master_address(options, *claim, variable);
    result.master_port = master_port(options, *claim, variable);
  }
  if (result.bind_addr.empty() && is_loopback(result.master_addr)) result.bind_addr = "127.0.0.1";
  return result;
}

bool is_launcher(const LaunchOptions& options, const GetVariable& variable) {
  if (options.ranks == 0 && !has_several_hosts(options)) return false;
  const RankEnvironment place = read_rank_environment(options, variable);  // checks
  require_usage(options.ranks != 0 || place.world_size > 1,
                "--nnodes {} needs --ranks: how many there are on all hosts together",
                options.nnodes);
  return options.ranks > 1 && place.world_size == 1;
}

int ranks_wanted(const LaunchOptions& options) {
  const int started = read_rank_environment(options).world_size;
  return started > 1 ? started : options.ranks;
}

}  // namespace lab
