// Collectives of a ProcessGroup: blocking and posted.
#include <utility>

#include "common/comm/process_group_impl.h"
#include "common/comm/slot.h"

namespace lab {
namespace {

/// Of a collective in a group of one rank.
class NothingToWaitFor final : public Transfer {
 public:
  void wait(std::chrono::milliseconds) override {}
};

void run_blocking(Transport& transport, const Transport::Posted& posted) {
  if (posted.kind == OpKind::kAllGather)
    transport.all_gather(posted.input, posted.output, posted.call);
  else if (posted.kind == OpKind::kReduceScatter)
    transport.reduce_scatter(posted.input, posted.output, posted.op, posted.call);
  else
    transport.all_reduce(posted.output, posted.op, posted.call);
}

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

Transport::Collective ProcessGroup::Impl::call_of(const OpRecord& record, int root) const {
  return {.tag = collective_tag(record.sequence, static_cast<int>(record.kind), record.bytes, root,
                                record.tag),
          .timeout = timeout};
}

std::unique_ptr<Work::Impl> ProcessGroup::Impl::post_collective(OpKind kind, const Tensor& input,
                                                                const Tensor& output, ReduceOp op) {
  const bool direct = reaches(input, output);
  auto work = std::make_unique<Work::Impl>();
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
    fail_in(work->record.id, work->record, error);
  }
  return work;
}

std::unique_ptr<Transfer> ProcessGroup::Impl::start(const Transport::Posted& posted,
                                                    const Work::Impl& work, bool reaches_gpus) {
  if (size() == 1) {
    posted.started(0);
    posted.finished(0);
    return std::make_unique<NothingToWaitFor>();
  }
  // Without numbers to move, only a barrier waits for the other ranks.
  const bool empty = posted.input.empty();
  const std::shared_ptr<Transport>& chosen = reaches_gpus && !empty ? between_gpus : transport;
  if (auto transfer = chosen->post(posted)) return transfer;
  if (thread == nullptr) thread = std::make_unique<CollectiveThread>();
  return thread->run({.body =
                          [chosen, posted, empty, input = work.input, output = work.data] {
                            if (empty)
                              chosen->barrier(posted.call);
                            else
                              run_blocking(*chosen, posted);
                          },
                      .started = [posted] { posted.started(0); },
                      .finished = [posted] { posted.finished(0); }});
}

void ProcessGroup::Impl::collective(OpKind kind, int64_t elements, int root, ReduceOp op,
                                    const Body& body) {
  const OpRecord record = collective_record(kind, elements, root, op);
  const Transport::Collective call = call_of(record, root);
  recorder.waiting(record.id);
  try {
    if (thread != nullptr) thread->drain(timeout);
    if (size() > 1) {
      // Without numbers to move, Gloo's collectives would not wait for the other ranks.
      if (elements == 0 && kind != OpKind::kSplit)
        transport->barrier(call);
      else
        body(call);
    }
  } catch (const Error& error) {
    fail_in(record.id, record, error);
  }
  recorder.done(record.id);
}

void ProcessGroup::barrier() {
  impl_->collective(OpKind::kBarrier, 0, -1, ReduceOp::kSum,
                    [](const Transport::Collective&) {});  // no elements: a barrier in any case
}

void ProcessGroup::broadcast(const Tensor& tensor, int root) {
  Impl::check_tensor(tensor, "broadcast");
  impl_->check_rank(root, "broadcast");
  impl_->collective(OpKind::kBroadcast, tensor.numel(), root, ReduceOp::kSum,
                    [&](const Transport::Collective& call) {
                      const bool direct = impl_->reaches(tensor);
                      const HostCopy data(tensor, direct);
                      if (rank() == root) data.load();
                      impl_->way(direct).broadcast(data.numbers(), root, call);
                      if (rank() != root) data.store();
                    });
}

void ProcessGroup::reduce(const Tensor& tensor, int root, ReduceOp op) {
  Impl::check_tensor(tensor, "reduce");
  impl_->check_rank(root, "reduce");
  impl_->collective(OpKind::kReduce, tensor.numel(), root, op,
                    [&](const Transport::Collective& call) {
                      const bool direct = impl_->reaches(tensor);
                      const HostCopy data(tensor, direct);
                      data.load();
                      impl_->way(direct).reduce(data.numbers(), root, op, call);
                      if (rank() == root) data.store();
                    });
}

void ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op) {
  Impl::check_tensor(tensor, "all_reduce");
  impl_->collective(OpKind::kAllReduce, tensor.numel(), -1, op,
                    [&](const Transport::Collective& call) {
                      const bool direct = impl_->reaches(tensor);
                      const HostCopy data(tensor, direct);
                      data.load();
                      impl_->way(direct).all_reduce(data.numbers(), op, call);
                      data.store();
                    });
}

void ProcessGroup::all_gather(const Tensor& output, const Tensor& input) {
  impl_->check_gather(output, input, "all_gather");
  impl_->copy_if_alone(output, input);
  impl_->collective(OpKind::kAllGather, input.numel(), -1, ReduceOp::kSum,
                    [&](const Transport::Collective& call) {
                      const bool direct = impl_->reaches(input, output);
                      const HostCopy own(input, direct);
                      const HostCopy all(output, direct);
                      own.load();
                      impl_->way(direct).all_gather(own.numbers(), all.numbers(), call);
                      all.store();
                    });
}

void ProcessGroup::reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op) {
  impl_->check_scatter(output, input, "reduce_scatter");
  impl_->copy_if_alone(output, input);
  impl_->collective(OpKind::kReduceScatter, output.numel(), -1, op,
                    [&](const Transport::Collective& call) {
                      const bool direct = impl_->reaches(input, output);
                      const HostCopy all(input, direct);
                      const HostCopy own(output, direct);
                      all.load();
                      impl_->way(direct).reduce_scatter(all.numbers(), own.numbers(), op, call);
                      own.store();
                    });
}

Work ProcessGroup::all_reduce_async(const Tensor& tensor, ReduceOp op) {
  Impl::check_tensor(tensor, "all_reduce_async");
  Work work(impl_->post_collective(OpKind::kAllReduce, tensor, tensor, op));
  work.impl_->group = impl_;
  return work;
}

Work ProcessGroup::all_gather_async(const Tensor& output, const Tensor& input) {
  impl_->check_gather(output, input, "all_gather_async");
  impl_->copy_if_alone(output, input);
  Work work(impl_->post_collective(OpKind::kAllGather, input, output, ReduceOp::kSum));
  work.impl_->group = impl_;
  return work;
}

Work ProcessGroup::reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op) {
  impl_->check_scatter(output, input, "reduce_scatter_async");
  impl_->copy_if_alone(output, input);
  Work work(impl_->post_collective(OpKind::kReduceScatter, input, output, op));
  work.impl_->group = impl_;
  return work;
}

}  // namespace lab
