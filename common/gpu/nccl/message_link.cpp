#include "common/gpu/nccl/message_link.h"

#include <utility>

#include "common/error.h"

namespace lab::nccl {
namespace {

// Ranks within the communicator.
constexpr int kSender = 0;
constexpr int kReceiver = 1;

}  // namespace

MessageLink::MessageLink(Store& store, Connections& connections, Ends ends)
    : store_(store),
      connections_(connections),
      ends_(std::move(ends)),
      key_(fmt::format("nccl/{}/{}-{}", ends_.group, ends_.from, ends_.to)) {
  if (!ends_.sends) return;
  const std::string id = make_unique_id();
  store_.set(key_, id);
  connect(id);
}

void MessageLink::connect(const std::string& unique_id) {
  communicator_ =
      &connections_.connect({ends_.from, ends_.to}, unique_id, ends_.sends ? kSender : kReceiver, 2,
                            fmt::format("messages from rank {} to rank {}", ends_.from, ends_.to));
}

void MessageLink::find_sender() {
  if (const auto id = store_.try_get(key_)) connect(*id);
}

void MessageLink::post(std::shared_ptr<Message> message) {
  message->note = connections_.notes().take();
  *message->note.host_own = message->text;
  message->event.record_computation();
  queue_.push_back(std::move(message));
}

bool MessageLink::progress() {
  if (communicator_ == nullptr) find_sender();
  if (communicator_ == nullptr) return !queue_.empty();
  bool ready = communicator_->ready();
  while (ready && !queue_.empty()) {
    Message& next = *queue_.front();
    if (!asked_) {
      ask_gpu_for(next);
    } else {
      const cudaStream_t stream = communicator_->stream().get();
      next.note.fetch_other_from_gpu(stream);
      next.event.record(stream);
      next.state = Message::State::kUnderWay;
      under_way_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    asked_ = !asked_;
    ready = communicator_->ready();
  }
  take_down_finished();
  return !queue_.empty();
}

void MessageLink::ask_gpu_for(const Message& message) {
  communicator_->stream().follow(message.event);
  message.note.send_own_to_gpu(communicator_->stream().get());
  communicator_->ask([&](ncclComm_t communicator, cudaStream_t stream) {
    const int other = ends_.sends ? kReceiver : kSender;
    ncclResult_t result =
        ncclSend(message.note.gpu_own, sizeof(NoteText), ncclUint8, other, communicator, stream);
    if (result == ncclSuccess)
      result = ncclRecv(message.note.gpu_other, sizeof(NoteText), ncclUint8, other, communicator,
                        stream);
    if (result != ncclSuccess || message.bytes == 0) return result;
    return ends_.sends
               ? ncclSend(message.data, message.bytes, ncclUint8, other, communicator, stream)
               : ncclRecv(message.data, message.bytes, ncclUint8, other, communicator, stream);
  });
}

void MessageLink::take_down_finished() {
  while (!under_way_.empty() && under_way_.front()->event.happened()) {
    Message& message = *under_way_.front();
    message.answer = *message.note.host_other;
    message.state = Message::State::kDone;
    connections_.notes().give_back(message.note);
    under_way_.pop_front();
  }
}

bool MessageLink::finished(const Message& message) const {
  if (message.state != Message::State::kDone) return false;
  const uint64_t own = message.text.words[1];
  const uint64_t other = message.answer.words[1];
  require(message.answer == message.text,
          "messages from rank {} to rank {} were received in a different order than sent{}: "
          "NCCL knows no tags, so post the recvs in the order of the sends, or use --comm gloo",
          ends_.from, ends_.to,
          own == other ? "" : fmt::format(" (one side has {} bytes, the other {})", own, other));
  return true;
}

}  // namespace lab::nccl
