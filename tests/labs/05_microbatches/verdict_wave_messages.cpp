// The messages of one wave: that a schedule's were sent and received, and no others.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "tests/labs/05_microbatches/verdict_wave.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::grading::Parcel;

namespace {

/// As the rank program reports it.
struct Message {
  bool recv = false;
  int peer = 0;
  int tag = 0;
  double bytes = 0;

  bool operator==(const Message&) const = default;
  bool operator<(const Message& other) const {
    return std::tie(recv, peer, tag, bytes) <
           std::tie(other.recv, other.peer, other.tag, other.bytes);
  }
};

std::vector<Message> messages_of(const Parcel& result) {
  const Numbers numbers = result.numbers("messages");
  std::vector<Message> messages;
  for (size_t i = 0; i + 3 < numbers.size(); i += 4)
    messages.push_back({numbers[i] != 0, static_cast<int>(numbers[i + 1]),
                        static_cast<int>(numbers[i + 2]), numbers[i + 3]});
  std::sort(messages.begin(), messages.end());
  return messages;
}

std::vector<Message> messages_in(const WaveCase& c, int rank) {
  const std::vector<lab::TokenBatch> microbatches = c.microbatches();
  std::vector<Message> messages;
  for (const Action& action : c.schedule.stages[static_cast<size_t>(rank)]) {
    if (!is_message(action.kind)) continue;
    const bool before =
        action.kind == ActionKind::kRecvActivation || action.kind == ActionKind::kSendGradient;
    const lab::TokenBatch& batch = microbatches[static_cast<size_t>(action.microbatch)];
    const auto bytes =
        static_cast<double>(batch.batch * batch.length * pipeline_tests::kDim) * sizeof(float);
    messages.push_back(
        {!is_send(action.kind), before ? rank - 1 : rank + 1, action.microbatch, bytes});
  }
  std::sort(messages.begin(), messages.end());
  return messages;
}

/// Of those in one direction.
std::string tags_in_words(const std::vector<Message>& messages) {
  std::string words;
  for (const Message& message : messages)
    words += fmt::format("{}{}", words.empty() ? "" : " ", message.tag);
  return words.empty() ? "none" : words;
}

std::vector<Message> those_with(const std::vector<Message>& all, bool recv, int peer) {
  std::vector<Message> some;
  for (const Message& message : all)
    if (message.recv == recv && message.peer == peer) some.push_back(message);
  return some;
}

std::string compare_messages(int rank, const std::vector<Message>& got,
                             const std::vector<Message>& right) {
  for (const bool recv : {true, false})
    for (const int peer : {rank - 1, rank + 1}) {
      const std::vector<Message> some = those_with(got, recv, peer);
      const std::vector<Message> wanted = those_with(right, recv, peer);
      if (some == wanted) continue;
      const std::string verb = recv ? "receives" : "sends";
      const std::string way = fmt::format("{} rank {}", recv ? "from" : "to", peer);
      if (some.size() != wanted.size())
        return fmt::format("rank {} {} {} messages {}, its actions have {}", rank, verb,
                           some.size(), way, wanted.size());
      if (tags_in_words(some) != tags_in_words(wanted))
        return fmt::format(
            "rank {} {} {} with the tags {}; the microbatches are {}: the tag of a "
            "message is its microbatch",
            rank, verb, way, tags_in_words(some), tags_in_words(wanted));
      const auto differs = std::ranges::mismatch(some, wanted);
      return fmt::format(
          "rank {} {} {} bytes {} with tag {}, an activation or gradient of that microbatch has "
          "{}: [B, T, C]",
          rank, verb, differs.in1->bytes, way, differs.in1->tag, differs.in2->bytes);
    }
  return "";
}

}  // namespace

std::string wrong_messages(const std::vector<Parcel>& results, const WaveCase& c) {
  for (size_t r = 0; r < results.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (std::string text = compare_messages(rank, messages_of(results[r]), messages_in(c, rank));
        !text.empty())
      return text;
    constexpr std::array kCollectives = {lab::OpKind::kBarrier,   lab::OpKind::kBroadcast,
                                         lab::OpKind::kReduce,    lab::OpKind::kAllReduce,
                                         lab::OpKind::kAllGather, lab::OpKind::kReduceScatter};
    for (const lab::OpKind kind : kCollectives)
      if (lab::grading::traffic_of(results[r], kind).operations > 0)
        return fmt::format("rank {} calls {}: the messages of its actions are all that is needed",
                           rank, lab::op_name(kind));
  }
  return "";
}

}  // namespace lab05
