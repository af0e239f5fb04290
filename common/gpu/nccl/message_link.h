// MessageLink: the messages from one rank to another, over a separate connection.
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
  /// At first, the point of the computation at which the message was posted; once the message has
  /// been launched on the GPU, the point at which it is done.
  Event event;
  Note note;
  NoteText answer;
  enum class State { kQueued, kUnderWay, kDone } state = State::kQueued;
};

/// A communicator performs its operations in the order of the calls, and both ranks must call in
/// matching orders. If one communicator served all messages, two ranks that both post a send before
/// they wait would wait forever. So each direction between two ranks has its own communicator,
/// which is made with the first message.
///
/// Along with the data, the two sides exchange notes that say what they send and expect. Because of
/// these, a send is done only when its receiver has posted the recv: NCCL alone would leave small
/// messages in a buffer.
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
  /// Does what can be done without waiting; returns whether messages are left that could not be
  /// launched on the GPU yet. Launched ones need no further calls. Throws Error.
  bool progress();
  /// Throws Error if it turns out that the other side had a different message in mind.
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
  Communicator* communicator_ = nullptr;        // null until the sender has begun
  std::deque<std::shared_ptr<Message>> queue_;  // not launched yet
  bool asked_ = false;                          // for the first of the queue
  std::deque<std::shared_ptr<Message>> under_way_;
};

}  // namespace lab::nccl
