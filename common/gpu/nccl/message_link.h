// MessageLink: the messages from one rank to another, over connections of their own.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "common/comm/store/store.h"
#include "common/gpu/nccl/connections.h"
#include "common/gpu/nccl/notes.h"
#include "common/gpu/nccl/stream.h"

namespace lab::nccl {

struct Message {
  void* data = nullptr;  // on the GPU
  size_t bytes = 0;
  NoteText text;  // slot and bytes, to be compared with the other side's
  /// At first, where the computation had got to when the message was posted; once the GPU has been
  /// asked for the message, where that is done.
  Event event;
  Note note;
  NoteText answer;
  enum class State { kQueued, kUnderWay, kDone } state = State::kQueued;
};

/// NCCL does what one communicator is asked for in the order in which it is asked, and both ranks
/// must ask in matching orders. If one communicator served all messages, two ranks that both post
/// a send before they wait would wait for ever. Each direction between two ranks therefore has a
/// communicator of its own; it begins with the first message.
///
/// Beside the data the two sides exchange notes of what they mean to send and to receive. With
/// them a send is done only when its receiver has posted the recv: NCCL by itself would leave
/// small messages in a buffer.
class MessageLink {
 public:
  struct Ends {
    std::string group;
    int from = 0;
    int to = 0;
    bool sends = false;  // this rank is `from`
  };
  MessageLink(Store& store, Connections& connections, Ends ends);

  void post(std::shared_ptr<Message> message);
  /// Does what can be done without waiting; returns whether messages are left for which the GPU
  /// could not yet be asked. Those it was asked for go on without further calls. Throws Error.
  bool progress();
  /// Throws Error if the message has turned out to be another one than that of the other side.
  bool finished(const Message& message) const;
  bool idle() const { return queue_.empty() && under_way_.empty(); }

 private:
  void connect(const std::string& unique_id);
  void find_sender();
  void ask_gpu_for(const Message& message);
  void take_down_finished();

  Store& store_;
  Connections& connections_;
  Ends ends_;
  std::string key_;
  Communicator* communicator_ = nullptr;        // until the sender has begun
  std::deque<std::shared_ptr<Message>> queue_;  // not yet with the GPU
  bool asked_ = false;                          // for the first of the queue
  std::deque<std::shared_ptr<Message>> under_way_;
};

}  // namespace lab::nccl
