// How the operations of the ranks of a communicator find each other.
#include <algorithm>

#include "tests/emulation/nccl/nccl_emulation.h"
#include "tests/emulation/nccl/operation.h"

namespace lab::emulation::nccl {
namespace {

void meet_messages(std::deque<std::shared_ptr<Operation>>& sends,
                   std::deque<std::shared_ptr<Operation>>& recvs) {
  while (!sends.empty() && !recvs.empty() && sends.front()->bytes() == recvs.front()->bytes()) {
    Operation& send = *sends.front();
    Operation& recv = *recvs.front();
    copy_bytes(recv.output, send.done ? send.buffer.data() : send.input, send.bytes());
    send.done = recv.done = true;
    sends.pop_front();
    recvs.pop_front();
  }
}

void meet_collective(Operations& all) {
  const auto fits = [&](const auto& each) {
    return each != nullptr && all[0] != nullptr && each->fits(*all[0]);
  };
  if (!std::ranges::all_of(all, fits)) return;
  carry_out(all);
  for (const auto& each : all) each->done = true;
  all.assign(all.size(), nullptr);  // met
}

}  // namespace

void begin(Clique& clique, int rank, const std::shared_ptr<Operation>& operation, size_t number) {
  Operation& one = *operation;
  if (one.kind == Kind::kRecv) {
    check_memory(one.output, one.bytes(), false);
    clique.recvs[{one.peer, rank}].push_back(operation);
  } else if (one.kind == Kind::kSend) {
    check_memory(one.input, one.bytes(), true);
    if (one.bytes() <= settings().buffer_bytes) {
      const char* data = static_cast<const char*>(one.input);
      one.buffer.assign(data, data + one.bytes());
      one.done = true;
    }
    clique.sends[{rank, one.peer}].push_back(operation);
  } else {
    if (clique.collectives.size() <= number)
      clique.collectives.resize(number + 1, Operations(static_cast<size_t>(clique.size)));
    clique.collectives[number][static_cast<size_t>(rank)] = operation;
  }
}

void meet(Clique& clique) {
  for (auto& [ends, sends] : clique.sends) meet_messages(sends, clique.recvs[ends]);
  for (Operations& all : clique.collectives) meet_collective(all);
}

}  // namespace lab::emulation::nccl
