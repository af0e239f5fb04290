// Which GPU of which machine a rank uses, and a check that no two ranks use the same one.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "common/comm/store/store.h"

namespace lab::nccl {

struct GpuPlace {
  std::string host;    // NCCL_HOSTID if set, as in NCCL; else this machine's name
  std::string bus_id;  // on the PCI bus: "0000:01:00.0"; the same in all processes of the machine
  int index = 0;       // as the process counts them
};

/// The place of this process's GPU.
GpuPlace own_gpu_place();

/// `places`: in the order of ranks. Throws Error if two ranks use the same GPU: NCCL needs one
/// each. Ranks with different NCCL_HOSTIDs count as being on different machines, for NCCL too: it
/// then moves data over the network, so it can be tried on a single GPU.
void require_own_gpus(std::span<const GpuPlace> places);

/// Exchanges the places of all ranks. Throws Error if a rank does not arrive in time or, on every
/// rank, if two use the same GPU.
void exchange_gpu_places(Store& store, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace lab::nccl
