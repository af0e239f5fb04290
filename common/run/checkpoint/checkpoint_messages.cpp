#include "common/run/checkpoint/checkpoint_messages.h"

#include <cstring>

#include "common/comm/agreement.h"
#include "common/error.h"

namespace lab {
namespace {

constexpr int kTextTag = 0x7E87;  // not one that a training step would use

// Characters, four to a number.
Tensor letters_of(const std::string& text) {
  const Tensor letters = Tensor::zeros({static_cast<int64_t>((text.size() + 3) / 4)});
  std::memcpy(letters.data(), text.data(), text.size());
  return letters;
}

std::string text_of(const Tensor& letters, size_t size) {
  return {reinterpret_cast<const char*>(letters.data()), size};
}

Tensor room_for(size_t size) { return Tensor::empty({static_cast<int64_t>((size + 3) / 4)}); }

std::string broadcast_text(ProcessGroup& group, const std::string& text) {
  const Tensor size = as_tensor(static_cast<double>(text.size()));
  group.broadcast(size);
  const auto count = static_cast<size_t>(as_double(size.data()));
  const Tensor letters = group.rank() == 0 ? letters_of(text) : room_for(count);
  group.broadcast(letters);
  return text_of(letters, count);
}

}  // namespace

std::string done_by_rank_0(ProcessGroup& group, const std::function<std::string()>& action) {
  std::string outcome;
  if (group.rank() == 0) {
    const std::string failure = failure_of([&] { outcome = "+" + action(); });
    if (!failure.empty()) outcome = "-" + failure;
  }
  outcome = broadcast_text(group, outcome);
  require(outcome.starts_with('+'), "{}", outcome.substr(1));
  return outcome.substr(1);
}

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text) {
  if (group.rank() > 0) {
    group.send(as_tensor(static_cast<double>(text.size())), 0, kTextTag);
    group.send(letters_of(text), 0, kTextTag);
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int rank = 1; rank < group.size(); ++rank) {
    const Tensor size = as_tensor(0.0);
    group.recv(size, rank, kTextTag);
    const auto count = static_cast<size_t>(as_double(size.data()));
    const Tensor letters = room_for(count);
    group.recv(letters, rank, kTextTag);
    texts.push_back(text_of(letters, count));
  }
  return texts;
}

}  // namespace lab
