// One call of an NCCL function by one rank, and how it meets those of the others.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lab::emulation::nccl {

enum class Kind { kSend, kRecv, kBroadcast, kReduce, kAllReduce, kAllGather, kReduceScatter };

struct Operation {
  Kind kind = Kind::kSend;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or root
  bool done = false;
  std::vector<char> buffer{};  // of a message that has left

  size_t bytes() const { return count * (type == ncclUint8 ? 1 : type == ncclUint64 ? 8 : 4); }
  bool is_message() const { return kind == Kind::kSend || kind == Kind::kRecv; }
  bool fits(const Operation& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           peer == other.peer;
  }
};
using Operations = std::vector<std::shared_ptr<Operation>>;

/// The ranks of one communicator, and what they have begun.
struct Clique {
  explicit Clique(int ranks) : size(ranks), places(static_cast<size_t>(ranks)) {}

  int size;
  std::map<int, cudaStream_t> streams;       // that each rank used last
  int arrived = 0;                           // ranks that have asked for the communicator
  std::set<int> ending;                      // ranks that have begun to destroy or abort it
  std::vector<std::string> places;           // host and bus id; empty where unknown
  std::set<std::pair<int, int>> connecting;  // who has asked for a message with whom
  std::vector<Operations> collectives;       // by number, by rank
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Operation>>> sends;  // by from and to
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Operation>>> recvs;
};

/// Begins an operation; `number` is that of a collective on this rank.
void begin(Clique& clique, int rank, const std::shared_ptr<Operation>& operation, size_t number);
/// Finishes whatever has all it needs.
void meet(Clique& clique);

/// Moves the numbers of a collective; `all` in order of ranks. Throws KernelError if memory of the
/// wrong kind is used.
void carry_out(const Operations& all);
/// Throws KernelError unless these are bytes of one allocation on the device, which have been
/// written if they are to be read.
void check_memory(const void* address, size_t bytes, bool reads);
void copy_bytes(void* to, const void* from, size_t bytes);

}  // namespace lab::emulation::nccl
