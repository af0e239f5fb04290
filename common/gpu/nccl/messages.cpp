#include "common/gpu/nccl/messages.h"

#include <algorithm>
#include <exception>

#include "common/error.h"
#include "common/gpu/nccl/patience.h"
#include "common/gpu/nccl/stream.h"

namespace lab::nccl {

class Messages::PostedMessage final : public Transfer {
 public:
  PostedMessage(std::shared_ptr<Messages> all, MessageLink& link, std::shared_ptr<Message> message)
      : all_(std::move(all)), link_(link), message_(std::move(message)) {}

  void wait(std::chrono::milliseconds timeout) override {
    const Patience patience(timeout);
    try {
      while (!all_->finished(link_, *message_)) patience.pause_or_fail();
    } catch (const Error& error) {
      all_->break_off(error.what());
      throw;
    }
  }

 private:
  std::shared_ptr<Messages> all_;
  MessageLink& link_;
  std::shared_ptr<Message> message_;
};

Messages::Messages(Store& store, std::shared_ptr<Connections> connections, std::string group,
                   int rank)
    : store_(store), connections_(std::move(connections)), group_(std::move(group)), rank_(rank) {}

template <typename Body>
auto Messages::guarded(const Body& body) {
  const std::lock_guard lock(mutex_);
  throw_if_broken();
  try {
    return body();
  } catch (const std::exception& error) {
    drop_all(error.what());
    throw;
  }
}

std::unique_ptr<Transfer> Messages::post(const Post& what) {
  activate_gpu_for_messages();
  return guarded([&]() -> std::unique_ptr<Transfer> {
    MessageLink& link = link_for(what);
    const auto message = std::make_shared<Message>();
    message->data = what.data;
    message->bytes = what.bytes;
    message->text = {{what.slot, what.bytes}};
    link.post(message);
    if (link.progress()) {
      waiting_ = true;
      if (!helper_.joinable())
        helper_ = std::jthread([this](const std::stop_token& stop) { keep_going(stop); });
      changed_.notify_all();
    }
    return std::make_unique<PostedMessage>(shared_from_this(), link, message);
  });
}

MessageLink& Messages::link_for(const Post& what) {
  const MessageLink::Ends ends{.group = group_,
                               .from = what.send ? rank_ : what.peer,
                               .to = what.send ? what.peer : rank_,
                               .sends = what.send};
  return links_.try_emplace({what.peer, what.send}, store_, *connections_, ends).first->second;
}

bool Messages::finished(MessageLink& link, const Message& message) {
  return guarded([&] {
    activate_gpu();
    link.progress();
    return link.finished(message);
  });
}

void Messages::progress_all() {
  activate_gpu();
  waiting_ = false;
  for (auto& [ends, link] : links_) waiting_ = link.progress() || waiting_;
}

void Messages::keep_going(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return waiting_; })) {
    const Patience patience(std::chrono::milliseconds(0));
    while (waiting_ && !stop.stop_requested()) {
      try {
        progress_all();
      } catch (const std::exception& error) {
        note_failure(error.what());  // the program's thread may be in a collective
      }
      lock.unlock();
      patience.pause();
      lock.lock();
    }
    if (stop.stop_requested()) return;
  }
}

void Messages::require_whole() {
  const std::lock_guard lock(mutex_);
  throw_if_broken();
}

void Messages::throw_if_broken() {
  if (broken_.empty()) return;
  connections_->abort();
  fail("the connections between GPUs were closed earlier: {}", broken_);
}

void Messages::break_off(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  drop_all(why);
}

void Messages::note_failure(const std::string& why) noexcept {
  if (broken_.empty()) broken_ = why;
  waiting_ = false;
}

void Messages::drop_all(const std::string& why) noexcept {
  note_failure(why);
  connections_->abort();
}

bool Messages::all_idle() noexcept {
  try {
    if (broken_.empty()) progress_all();
  } catch (const std::exception& error) {
    note_failure(error.what());
  }
  return !broken_.empty() ||
         std::ranges::all_of(links_, [](const auto& each) { return each.second.idle(); });
}

void Messages::close(const Patience& patience) noexcept {
  std::unique_lock lock(mutex_);
  while (!all_idle() && !patience.over()) {
    lock.unlock();
    patience.pause();
    lock.lock();
  }
  if (broken_.empty() && all_idle()) connections_->close(patience);
  drop_all("the group has ended");
}

}  // namespace lab::nccl
