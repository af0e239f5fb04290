// Inputs and messages in parcels.
#include "tests/labs/05_microbatches/rank_stage.h"

#include <fmt/format.h>

#include "labs/01_single_gpu/single_gpu.h"

namespace lab05 {

using lab::grading::Parcel;

std::vector<lab::TokenBatch> microbatches_of(const Parcel& input) {
  std::vector<lab::TokenBatch> batches;
  for (int k = 0; k < static_cast<int>(input.number("microbatches")); ++k)
    batches.push_back(input.batch(fmt::format("microbatch{}", k)));
  return batches;
}

std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size) {
  if (name == "sgd") return std::make_unique<lab::Sgd>();
  // A large epsilon: with a small one a gradient near zero, which is all rounding, would decide
  // about the whole length of a weight's step.
  const lab::AdamConfig config{.epsilon = 1e-3F};
  return std::make_unique<lab::Adam>(size, config, lab01::adam_update);
}

std::vector<double> messages_of(lab::ProcessGroup& world) {
  std::vector<double> numbers;
  for (const lab::OpRecord& record : world.recorder().history())
    if (lab::is_message(record.kind))
      numbers.insert(
          numbers.end(),
          {record.kind == lab::OpKind::kSend ? 0.0 : 1.0, static_cast<double>(record.peer),
           static_cast<double>(record.tag), static_cast<double>(record.bytes)});
  return numbers;
}

void require_nothing_pending(lab::ProcessGroup& world, const std::string& function) {
  std::string list;
  for (const lab::OpRecord& record : world.recorder().snapshot().pending)
    if (lab::is_message(record.kind))
      list +=
          fmt::format("{}{}({} {}, tag {})", list.empty() ? "" : ", ", lab::op_name(record.kind),
                      record.kind == lab::OpKind::kSend ? "to" : "from", record.peer, record.tag);
  lab::require(list.empty(),
               "{} has returned, but nobody has waited for {}: keep what isend and irecv return, "
               "and wait for it",
               function, list);
}

}  // namespace lab05
