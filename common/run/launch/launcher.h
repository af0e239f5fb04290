// The launcher: starts all ranks of a job on this machine and watches over them.
#pragma once

#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// Starts `options.ranks` processes of this very program with the same arguments and RANK,
/// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT in their environment, an equal share of the
/// cores each (OMP_NUM_THREADS, unless it is set), and serves their store. Prints their output line
/// by line behind "[rank] ". Forwards Ctrl-C and SIGTERM, and waits for the ranks as long as their
/// step takes; a second one kills them. When a rank fails or the job can never go on, it ends the
/// others, and says at the end which rank was the cause, and why. Leaves neither process nor file
/// behind. Returns the exit code for main: 0 if all ranks returned 0, 130 after Ctrl-C, else the
/// failed rank's (128 + signal for a signal).
///
/// On one of several hosts (`options.nnodes`), it starts that host's share: of n ranks on N hosts,
/// host K has ranks K·n/N and on. Rank 0 serves the store at the master's address, and the ranks'
/// watchdogs judge the job. A rank that fails on one host ends all hosts.
int launch_ranks(const LaunchOptions& options, int argc, const char* const* argv);

}  // namespace lab
