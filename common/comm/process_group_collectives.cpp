// Collectives of a ProcessGroup: blocking and posted.
#include "common/comm/process_group_impl.h"
#include "common/comm/slot.h"

namespace lab {
namespace {

/// Of a collective in a group of one rank.
class NothingToWaitFor final : public Transfer {
 public:
  void wait(std::chrono::milliseconds) override {}
};

}  // namespace

void ProcessGroup::Impl::finish_collectives() {
  for (const auto& work : forgotten) {
    if (!is_collective(work->record.kind)) continue;
    recorder.waiting(work->record.id);  // where this rank is, should it never end
    try {
      work->transfer->wait(timeout);
    } catch (...) {  // a destructor has nobody to tell; the others will say what they miss
      return;
    }
  }
}

OpRecord ProcessGroup::Impl::collective_record(OpKind kind, int64_t elements, int root,
                                               ReduceOp op) {
  OpRecord record{.kind = kind,
                  .group = id,
                  .peer = root < 0 ? -1 : world_ranks[static_cast<size_t>(root)],
                  .tag = static_cast<int>(op),
                  .bytes = static_cast<uint64_t>(elements) * sizeof(float),
                  .sequence = ++collectives};
  record.id = recorder.posted(record);
  return record;
}

Transport::Call ProcessGroup::Impl::call_of(const OpRecord& record, int root) const {
  return {.tag = collective_tag(record.sequence, static_cast<int>(record.kind), record.bytes, root,
                                record.tag),
          .timeout = timeout};
}

std::unique_ptr<Work::Impl> ProcessGroup::Impl::post_collective(OpKind kind, const Tensor& input,
                                                                const Tensor& output, ReduceOp op) {
  const bool direct = reaches(input, output) || size() == 1;  // alone, nothing moves
  auto work = std::make_unique<Work::Impl>();
  work->group = shared_from_this();
  work->data = HostCopy(output, direct);
  work->input = kind == OpKind::kAllReduce ? work->data : HostCopy(input, direct);
  work->input.load();
  const Tensor& part = kind == OpKind::kReduceScatter ? output : input;
  work->record = collective_record(kind, part.numel(), -1, op);
  const auto started = [&log = recorder, number = work->record.id](int64_t at_ns) {
    log.started(number, at_ns);
  };
  const auto finished = [&log = recorder, number = work->record.id](int64_t at_ns) {
    log.finished(number, at_ns);
  };
  try {
    work->transfer = start({.kind = kind,
                            .input = work->input.numbers(),
                            .output = work->data.numbers(),
                            .op = op,
                            .call = call_of(work->record, -1),
                            .started = started,
                            .finished = finished},
                           *work, direct);
  } catch (const Error& error) {
    fail_in(work->record, error);
  }
  return work;
}

std::unique_ptr<Transfer> ProcessGroup::Impl::start(Transport::Collective posted,
                                                    const Work::Impl& work, bool reaches_gpus) {
  if (size() == 1) {
    posted.started(0);
    posted.finished(0);
    return std::make_unique<NothingToWaitFor>();
  }
  // Without numbers to move, only a barrier waits for the other ranks.
  const bool empty = posted.input.empty();
  if (empty) posted.kind = OpKind::kBarrier;
  const std::shared_ptr<Transport>& chosen = reaches_gpus && !empty ? between_gpus : transport;
  if (auto transfer = chosen->post(posted)) return transfer;
  if (thread == nullptr) thread = std::make_unique<CollectiveThread>();
  return thread->run(
      {.body = [chosen, posted, input = work.input, output = work.data] { chosen->run(posted); },
       .started = [posted] { posted.started(0); },
       .finished = [posted] { posted.finished(0); }});
}

void ProcessGroup::Impl::collective(OpKind kind, int64_t elements, int root, ReduceOp op,
                                    const Body& body) {
  const OpRecord record = collective_record(kind, elements, root, op);
  const Transport::Call call = call_of(record, root);
  recorder.waiting(record.id);
  try {
    if (thread != nullptr) thread->drain(timeout);
    if (size() > 1) {
      // Without numbers to move, Gloo's collectives would not wait for the other ranks.
      if (elements == 0 && kind != OpKind::kSplit)
        transport->run({.kind = OpKind::kBarrier, .call = call});
      else
        body(call);
    }
  } catch (const Error& error) {
    fail_in(record, error);
  }
  recorder.done(record.id);
}

void ProcessGroup::barrier() {
  impl_->collective(OpKind::kBarrier, 0, -1, ReduceOp::kSum,
                    [](const Transport::Call&) {});  // no elements: a barrier in any case
}

void ProcessGroup::Impl::blocking(OpKind kind, const Tensor& input, const Tensor& output,
                                  ReduceOp op, int root) {
  const bool reads = kind != OpKind::kBroadcast || rank == root;
  const bool writes = kind == OpKind::kBroadcast ? rank != root : root < 0 || rank == root;
  const Tensor& part = kind == OpKind::kReduceScatter ? output : input;
  const bool direct = reaches(input, output) || size() == 1;
  const bool in_place = kind != OpKind::kAllGather && kind != OpKind::kReduceScatter;
  // Before the collective begins: being out of memory is no fault of the network.
  const HostCopy to(output, direct);
  const HostCopy from = in_place ? to : HostCopy(input, direct);
  collective(kind, part.numel(), root, op, [&](const Transport::Call& call) {
    if (reads) from.load();
    way(direct).run({.kind = kind,
                     .input = from.numbers(),
                     .output = to.numbers(),
                     .op = op,
                     .root = root,
                     .call = call});
    if (writes) to.store();
  });
}

void ProcessGroup::broadcast(const Tensor& tensor, int root) {
  Impl::check_tensor(tensor, "broadcast");
  impl_->check_rank(root, "broadcast");
  impl_->blocking(OpKind::kBroadcast, tensor, tensor, ReduceOp::kSum, root);
}

void ProcessGroup::reduce(const Tensor& tensor, int root, ReduceOp op) {
  Impl::check_tensor(tensor, "reduce");
  impl_->check_rank(root, "reduce");
  impl_->blocking(OpKind::kReduce, tensor, tensor, op, root);
}

void ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op) {
  Impl::check_tensor(tensor, "all_reduce");
  impl_->blocking(OpKind::kAllReduce, tensor, tensor, op, -1);
}

void ProcessGroup::all_gather(const Tensor& output, const Tensor& input) {
  impl_->check_and_copy_if_alone(OpKind::kAllGather, output, input, "all_gather");
  impl_->blocking(OpKind::kAllGather, input, output, ReduceOp::kSum, -1);
}

void ProcessGroup::reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op) {
  impl_->check_and_copy_if_alone(OpKind::kReduceScatter, output, input, "reduce_scatter");
  impl_->blocking(OpKind::kReduceScatter, input, output, op, -1);
}

Work ProcessGroup::all_reduce_async(const Tensor& tensor, ReduceOp op) {
  Impl::check_tensor(tensor, "all_reduce_async");
  return Work(impl_->post_collective(OpKind::kAllReduce, tensor, tensor, op));
}

Work ProcessGroup::all_gather_async(const Tensor& output, const Tensor& input) {
  impl_->check_and_copy_if_alone(OpKind::kAllGather, output, input, "all_gather_async");
  return Work(impl_->post_collective(OpKind::kAllGather, input, output, ReduceOp::kSum));
}

Work ProcessGroup::reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op) {
  impl_->check_and_copy_if_alone(OpKind::kReduceScatter, output, input, "reduce_scatter_async");
  return Work(impl_->post_collective(OpKind::kReduceScatter, input, output, op));
}

}  // namespace lab
