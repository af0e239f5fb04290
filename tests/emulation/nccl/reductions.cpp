// What each collective computes, once all ranks have come.
#include <algorithm>
#include <cstdint>

#include "tests/emulation/emulation.h"
#include "tests/emulation/nccl/operation.h"

namespace lab::emulation::nccl {
namespace {

template <typename T>
T combined(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclSum:
      return a + b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      throw KernelError("NCCL: the stand-in knows no such reduction");
  }
}

template <typename T>
std::vector<T> reduced(const Operations& all, size_t count) {
  const T* first = static_cast<const T*>(all[0]->input);
  std::vector<T> result(first, first + count);
  for (size_t r = 1; r < all.size(); ++r) {
    const T* next = static_cast<const T*>(all[r]->input);
    for (size_t i = 0; i < count; ++i) result[i] = combined(all[0]->op, result[i], next[i]);
  }
  return result;
}

template <typename T>
void reduce(const Operations& all) {
  const Operation& one = *all[0];
  const bool scatters = one.kind == Kind::kReduceScatter;
  const std::vector<T> result = reduced<T>(all, one.count * (scatters ? all.size() : 1));
  for (size_t r = 0; r < all.size(); ++r) {
    if (one.kind == Kind::kReduce && r != static_cast<size_t>(one.peer)) continue;
    copy_bytes(all[r]->output, result.data() + (scatters ? r * one.count : 0), one.bytes());
  }
}

void gather(const Operations& all) {
  const size_t bytes = all[0]->bytes();
  std::vector<char> result;
  for (const auto& each : all) {
    const char* input = static_cast<const char*>(each->input);
    result.insert(result.end(), input, input + bytes);
  }
  for (const auto& each : all) copy_bytes(each->output, result.data(), result.size());
}

void broadcast(const Operations& all) {
  const Operation& root = *all[static_cast<size_t>(all[0]->peer)];
  for (const auto& each : all) copy_bytes(each->output, root.input, root.bytes());
}

void check_all(const Operations& all) {
  const size_t bytes = all[0]->bytes();
  const Kind kind = all[0]->kind;
  const auto root = static_cast<size_t>(all[0]->peer);
  for (size_t r = 0; r < all.size(); ++r) {
    const bool reads = kind != Kind::kBroadcast || r == root;
    const bool writes = kind != Kind::kReduce || r == root;
    if (reads)
      check_memory(all[r]->input, kind == Kind::kReduceScatter ? bytes * all.size() : bytes, true);
    if (writes)
      check_memory(all[r]->output, kind == Kind::kAllGather ? bytes * all.size() : bytes, false);
  }
}

}  // namespace

void carry_out(const Operations& all) {
  check_all(all);
  if (all[0]->kind == Kind::kBroadcast)
    broadcast(all);
  else if (all[0]->kind == Kind::kAllGather)
    gather(all);
  else if (all[0]->type == ncclUint64)
    reduce<uint64_t>(all);
  else if (all[0]->type == ncclFloat32)
    reduce<float>(all);
  else
    throw KernelError("NCCL: the stand-in does not reduce this type");
}

}  // namespace lab::emulation::nccl
