#include "common/gpu/nccl/gpu_place.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "common/error.h"
#include "common/gpu/cuda/check.h"
#include "common/gpu/nccl/patience.h"
#include "common/tensor/accelerator.h"

namespace lab::nccl {
namespace {

std::string host_name() {
  const char* chosen = std::getenv("NCCL_HOSTID");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  std::array<char, 256> name{};
  require(gethostname(name.data(), name.size() - 1) == 0, "this machine has no name: set one");
  return name.data();
}

std::string key_of(int rank) { return fmt::format("nccl/gpu/{}", rank); }

/// Bus id and index first, because a host's name may contain anything.
std::string to_text(const GpuPlace& place) {
  return fmt::format("{} {} {}", place.bus_id, place.index, place.host);
}

GpuPlace from_text(const std::string& text) {
  const size_t first = text.find(' ');
  const size_t second = text.find(' ', first + 1);
  require(second != std::string::npos, "'{}' does not say where a GPU is", text);
  GpuPlace place{.host = text.substr(second + 1), .bus_id = text.substr(0, first)};
  std::from_chars(text.data() + first + 1, text.data() + second, place.index);
  return place;
}

GpuPlace place_of(Store& store, int rank, std::chrono::milliseconds timeout) {
  const auto text = store.get_within(key_of(rank), timeout);
  require(text.has_value(), "rank {} has not said within {} which GPU it uses: was it started?",
          rank, seconds(timeout));
  return from_text(*text);
}

}  // namespace

GpuPlace own_gpu_place() {
  const int index = accelerator().index();
  std::array<char, 32> id{};
  cuda::check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), index),
              "cudaDeviceGetPCIBusId", "looking at GPU {}", index);
  return {.host = host_name(), .bus_id = id.data(), .index = index};
}

void require_own_gpus(std::span<const GpuPlace> places) {
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b)
      require(places[a].host != places[b].host || places[a].bus_id != places[b].bus_id,
              "ranks {} and {} share GPU {} ({}) of host {}: NCCL wants one GPU per rank: start "
              "fewer ranks, or use --comm gloo, which lets ranks share a GPU",
              a, b, places[a].index, places[a].bus_id, places[a].host);
}

void exchange_gpu_places(Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  store.set(key_of(rank), to_text(own_gpu_place()));
  std::vector<GpuPlace> places;
  for (int r = 0; r < size; ++r) places.push_back(place_of(store, r, timeout));
  require_own_gpus(places);
}

}  // namespace lab::nccl
