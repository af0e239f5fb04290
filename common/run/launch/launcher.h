// The launcher: starts all ranks of a job on this machine and watches over them.
#pragma once

#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// Starts `options.ranks` processes of this program with the same arguments; sets RANK, WORLD_SIZE,
/// LOCAL_RANK, MASTER_ADDR and MASTER_PORT in their environment, and OMP_NUM_THREADS to an equal
/// part of the cores unless it is set; and serves their store. Prints their output line by line,
/// each prefixed with "[rank] ". Forwards Ctrl-C and SIGTERM and waits until the ranks have
/// finished their step; a second one kills them. When a rank fails or the job can never go on, it
/// ends the others and says at the end which rank was the cause, and why. It leaves no process or
/// file behind. Returns the exit code for main: 0 if all ranks returned 0, 130 after Ctrl-C, else
/// that of the failed rank (128 + signal for a signal).
///
/// On one of several hosts (`options.nnodes`), it starts only that host's ranks: of n ranks on N
/// hosts, those of host K begin with rank K·n/N. Rank 0 serves the store at the master's address
/// and judges the job (Watchdog). A rank that fails on one host ends all hosts.
int launch_ranks(const LaunchOptions& options, int argc, const char* const* argv);

}  // namespace lab
