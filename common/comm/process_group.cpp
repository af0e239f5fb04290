// ProcessGroup: checks, numbers and records every operation, then hands it to the transport.
#include "common/comm/process_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "common/comm/process_group_impl.h"
#include "common/comm/slot.h"

namespace lab {

ProcessGroup::Impl::~Impl() {
  // A rank that leaves because of an exception has not left in good order.
  if (std::uncaught_exceptions() > 0) return;
  finish_collectives();
  if (id == 0) recorder.leave();
}

Work::Work(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Work::~Work() {
  if (impl_ == nullptr || impl_->transfer == nullptr) return;
  // The transport still reads or writes the tensor: keep both as long as the group lives.
  // This may be the last owner of the group, which must not end before the line that uses it.
  const std::shared_ptr<ProcessGroup::Impl> group = std::move(impl_->group);
  group->forgotten.push_back(std::move(impl_));
}

void Work::wait() {
  if (impl_ == nullptr || impl_->transfer == nullptr) return;
  ProcessGroup::Impl& group = *impl_->group;
  group.recorder.waiting(impl_->record.id);
  try {
    impl_->transfer->wait(group.timeout);
  } catch (const Error& error) {
    group.fail_in(impl_->record, error);
  }
  impl_->transfer.reset();
  if (impl_->record.kind != OpKind::kSend) impl_->data.store();
  group.recorder.done(impl_->record.id);
}

void wait_all(std::span<Work> works) {
  for (Work& work : works) work.wait();
}

std::unique_ptr<Work::Impl> ProcessGroup::Impl::post(OpKind kind, const Tensor& tensor, int peer,
                                                     int tag) {
  const char* verb = kind == OpKind::kSend ? "send" : "recv";
  check_rank(peer, verb);
  require(peer != rank, "{}: rank {} of {} cannot exchange messages with itself", verb, rank, name);
  require(tag >= 0 && tag <= kMaxTag, "{}: tag {} lies outside [0, {}]", verb, tag, kMaxTag);
  check_tensor(tensor, verb);

  auto work = std::make_unique<Work::Impl>();
  work->group = shared_from_this();
  work->data = HostCopy(tensor, reaches(tensor));
  if (kind == OpKind::kSend) work->data.load();
  work->record = {.kind = kind,
                  .group = id,
                  .peer = world_ranks[static_cast<size_t>(peer)],
                  .tag = tag,
                  .bytes = tensor.bytes(),
                  .sequence = messages[{kind, peer, tag}]++};
  work->record.id = recorder.posted(work->record);
  const uint64_t slot = message_slot(tag, work->record.sequence, tensor.bytes());
  const std::span<float> numbers = work->data.numbers();
  Transport& chosen = way(reaches(tensor));
  try {
    work->transfer =
        kind == OpKind::kSend ? chosen.send(numbers, peer, slot) : chosen.recv(numbers, peer, slot);
  } catch (const Error& error) {
    fail_in(work->record, error);
  }
  return work;
}

ProcessGroup::ProcessGroup(std::shared_ptr<Transport> transport, FlightRecorder& recorder, int rank,
                           int size, std::chrono::milliseconds timeout) {
  require(size >= 1 && size <= kMaxWorldSize, "world size {}: it must lie between 1 and {}", size,
          kMaxWorldSize);
  require(rank >= 0 && rank < size, "rank {}: it must lie between 0 and {}", rank, size - 1);
  require(timeout.count() > 0, "the timeout of a process group must be positive");
  std::vector<int> members(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) members[static_cast<size_t>(r)] = r;
  impl_ = std::make_shared<Impl>(std::move(transport), recorder, rank, std::move(members), 0,
                                 "world", timeout);
  impl_->clock = impl_->transport;
}

ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessGroup::~ProcessGroup() = default;
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;

void ProcessGroup::connect_gpus(std::shared_ptr<Transport> transport) {
  impl_->between_gpus = std::move(transport);
}

int ProcessGroup::rank() const { return impl_->rank; }
int ProcessGroup::size() const { return impl_->size(); }
const std::string& ProcessGroup::name() const { return impl_->name; }
FlightRecorder& ProcessGroup::recorder() const { return impl_->recorder; }

void ProcessGroup::advance_clock(double seconds) const {
  if (impl_->clock != nullptr) impl_->clock->advance_clock(seconds);
}

const CostModel* ProcessGroup::costs() const {
  return impl_->clock == nullptr ? nullptr : impl_->clock->costs();
}

int ProcessGroup::world_rank(int rank) const {
  impl_->check_rank(rank, "world_rank");
  return impl_->world_ranks[static_cast<size_t>(rank)];
}

Work ProcessGroup::isend(const Tensor& tensor, int to, int tag) {
  return Work(impl_->post(OpKind::kSend, tensor, to, tag));
}

Work ProcessGroup::irecv(const Tensor& tensor, int from, int tag) {
  return Work(impl_->post(OpKind::kRecv, tensor, from, tag));
}

void ProcessGroup::send(const Tensor& tensor, int to, int tag) { isend(tensor, to, tag).wait(); }
void ProcessGroup::recv(const Tensor& tensor, int from, int tag) {
  irecv(tensor, from, tag).wait();
}

std::vector<Work> ProcessGroup::batch_isend_irecv(std::span<const P2POp> operations) {
  std::vector<Work> works;
  for (const P2POp& op : operations)
    works.push_back(op.kind == P2POp::Kind::kSend ? isend(op.tensor, op.peer, op.tag)
                                                  : irecv(op.tensor, op.peer, op.tag));
  return works;
}

ProcessGroup ProcessGroup::split(int color, int key, const std::string& name) {
  require(color >= 0 && color <= kMaxTag, "split: color {} lies outside [0, {}]", color, kMaxTag);
  // In halves of 15 bits, colors and keys are exact in float32.
  const auto high = [](int value) { return static_cast<float>(value >> 15); };
  const auto low = [](int value) { return static_cast<float>(value & ((1 << 15) - 1)); };
  const Tensor own = Tensor::from({high(color), low(color), high(key), low(key)}, {4});
  const Tensor all = Tensor::empty({size(), 4});
  if (size() == 1) all.copy_from(own.view({1, 4}));

  std::shared_ptr<Impl> group;
  const auto whole = [&](int64_t rank, int64_t i) {
    const float* numbers = all.data() + rank * 4 + i;
    return static_cast<int>(numbers[0]) * (1 << 15) + static_cast<int>(numbers[1]);
  };
  const auto make_group = [&](const Transport::Call* call) {
    if (call != nullptr)
      impl_->transport->run({.kind = OpKind::kAllGather,
                             .input = own.values(),
                             .output = all.values(),
                             .call = *call});
    std::vector<std::pair<int, int>> order;  // key, rank
    for (int r = 0; r < size(); ++r)
      if (whole(r, 0) == color) order.emplace_back(whole(r, 2), r);
    std::ranges::sort(order);
    std::vector<int> ranks;
    std::vector<int> world_ranks;
    for (const auto& [ignored, r] : order) {
      ranks.push_back(r);
      world_ranks.push_back(world_rank(r));
    }
    const auto self = std::ranges::find(ranks, rank()) - ranks.begin();
    const uint32_t id = group_id(impl_->id, impl_->splits, color);
    const auto connect = [&](const std::shared_ptr<Transport>& all_ranks) {
      std::shared_ptr<Transport> some;
      if (all_ranks != nullptr && ranks.size() > 1)
        some = all_ranks->connect(ranks, fmt::format("{:08x}", id), impl_->timeout);
      return some;
    };
    group = std::make_shared<Impl>(
        connect(impl_->transport), impl_->recorder, static_cast<int>(self), std::move(world_ranks),
        id, name.empty() ? fmt::format("{}/{}", impl_->name, color) : name, impl_->timeout);
    group->between_gpus = connect(impl_->between_gpus);
    group->clock = impl_->clock;
  };
  ++impl_->splits;
  impl_->collective(OpKind::kSplit, own.numel(), -1, ReduceOp::kSum,
                    [&](const Transport::Call& call) { make_group(&call); });
  if (size() == 1) make_group(nullptr);
  return ProcessGroup(std::move(group));
}

}  // namespace lab
