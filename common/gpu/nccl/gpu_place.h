// Which GPU of which machine a rank uses, and that no two ranks use the same.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "common/comm/store/store.h"

namespace lab::nccl {

struct GpuPlace {
  std::string host;    // NCCL_HOSTID if that is set, as NCCL has it; else this machine's name
  std::string bus_id;  // on the PCI bus: "0000:01:00.0"; the same in all processes of the machine
  int index = 0;       // as its process counts
};

/// That of this process's GPU.
GpuPlace own_gpu_place();

/// Throws Error if two ranks, by their places in order of ranks, use the same GPU: NCCL wants one
/// each. Ranks with NCCL_HOSTIDs of their own count as being on different machines, for NCCL too:
/// it then moves data over the network, by which it can be tried out on a single GPU.
void require_own_gpus(std::span<const GpuPlace> places);

/// Tells all ranks this rank's place and learns theirs. Throws Error if a rank does not come in
/// time, or, on every rank, if two use the same GPU.
void exchange_gpu_places(Store& store, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace lab::nccl
