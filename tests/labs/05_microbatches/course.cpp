// Matching operations with actions.
#include "tests/labs/05_microbatches/course.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/format.h"
#include "tests/labs/05_microbatches/plans.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;
using lab::counted;
using lab::OpKind;
using lab::OpState;
using lab::grading::Operation;

namespace {

/// The split into pipelines is the tests' own.
bool is_split(const Operation& operation) {
  return operation.kind == OpKind::kSplit && operation.group == "world";
}

/// The action that an operation of the stage is; none, if no list can have it.
std::optional<Action> action_of(const Operation& operation, int rank) {
  const bool forwards = operation.peer == rank + 1;
  switch (operation.kind) {
    case OpKind::kForward:
      return Action{ActionKind::kForward, operation.microbatch};
    case OpKind::kBackward:
      return Action{ActionKind::kBackward, operation.microbatch};
    case OpKind::kSend:
      if (!forwards && operation.peer != rank - 1) return std::nullopt;
      return Action{forwards ? ActionKind::kSendActivation : ActionKind::kSendGradient,
                    operation.tag};
    case OpKind::kRecv:
      if (!forwards && operation.peer != rank - 1) return std::nullopt;
      return Action{forwards ? ActionKind::kRecvGradient : ActionKind::kRecvActivation,
                    operation.tag};
    default:
      return std::nullopt;
  }
}

/// Where it is in the list; posted or not.
size_t place_of(const ActionList& actions, const Action& wanted) {
  const auto found = std::ranges::find_if(actions, [&](const Action& action) {
    return action.kind == wanted.kind && action.microbatch == wanted.microbatch;
  });
  return static_cast<size_t>(found - actions.begin());
}

std::vector<Message> those_with(const std::vector<Message>& all, bool recv, int peer) {
  std::vector<Message> some;
  for (const Message& message : all)
    if (message.recv == recv && message.peer == peer) some.push_back(message);
  return some;
}

std::string wrong_bytes(int rank, int peer, const Message& got, uint64_t right) {
  return fmt::format(
      "rank {} {} {} bytes {} rank {} with tag {}; an activation or gradient of that microbatch "
      "has {}: [B, T, C], with its own B and T",
      rank, got.recv ? "receives" : "sends", got.bytes, got.recv ? "from" : "to", peer, got.tag,
      right);
}

}  // namespace

std::vector<Message> messages_in(const ActionList& actions, int stage,
                                 std::span<const lab::TokenBatch> microbatches, int64_t dim) {
  std::vector<Message> messages;
  for (const Action& action : actions) {
    if (!is_message(action.kind)) continue;
    const bool before =
        action.kind == ActionKind::kRecvActivation || action.kind == ActionKind::kSendGradient;
    const lab::TokenBatch& batch = microbatches[static_cast<size_t>(action.microbatch)];
    messages.push_back({is_recv(action), before ? stage - 1 : stage + 1, action.microbatch,
                        static_cast<uint64_t>(batch.batch * batch.length * dim) * sizeof(float)});
  }
  return messages;
}

std::vector<Message> messages_of(const std::vector<Operation>& operations, int first_rank) {
  std::vector<Message> messages;
  for (const Operation& operation : operations)
    if (is_message(operation.kind))
      messages.push_back({operation.kind == OpKind::kRecv, operation.peer - first_rank,
                          operation.tag, operation.bytes});
  return messages;
}

std::string wrong_messages(int rank, int first_rank, std::vector<Message> got,
                           std::vector<Message> right) {
  std::ranges::sort(got);
  std::ranges::sort(right);
  const auto [first_got, first_right] = std::ranges::mismatch(got, right);
  if (first_got == got.end() && first_right == right.end()) return "";
  // Of the peer that the first difference is about.
  const Message& differs =
      first_right == right.end() || (first_got != got.end() && *first_got < *first_right)
          ? *first_got
          : *first_right;
  const std::vector<Message> some = those_with(got, differs.recv, differs.peer);
  const std::vector<Message> wanted = those_with(right, differs.recv, differs.peer);
  const int peer = first_rank + differs.peer;
  const std::string verb = differs.recv ? "receives" : "sends";
  const std::string way = fmt::format("{} rank {}", differs.recv ? "from" : "to", peer);
  if (some.size() != wanted.size())
    return fmt::format(
        "rank {} {} {} {}, its actions have {}{}", rank, verb, counted(std::ssize(some), "message"),
        way, wanted.size(),
        some.size() < wanted.size() ? ": every action must be done, whatever the targets are" : "");
  const auto [one, right_one] =
      std::ranges::mismatch(some, wanted, {}, &Message::tag, &Message::tag);
  if (one != some.end()) {
    const int tag = std::min(one->tag, right_one->tag);
    return fmt::format(
        "rank {} {} {} {} with the tag {}, it should be {}: the tag of a message is its microbatch",
        rank, verb, counted(std::ranges::count(some, tag, &Message::tag), "message"), way, tag,
        std::ranges::count(wanted, tag, &Message::tag));
  }
  const auto bytes = std::ranges::mismatch(some, wanted);
  return wrong_bytes(rank, peer, *bytes.in1, bytes.in2->bytes);
}

namespace {

/// That passes and sends begin in the order of the list, posted recvs not after their place, and
/// others not before it.
std::string wrong_order(const Course& c) {
  ActionList wanted;
  std::vector<size_t> passed;  // for each action, how many of `wanted` come before it
  for (const Action& action : c.actions) {
    passed.push_back(wanted.size());
    if (!is_recv(action)) wanted.push_back(action);
  }
  size_t next = 0;
  for (const Operation& operation : c.operations) {
    const std::optional<Action> action = action_of(operation, c.rank());
    if (!action) continue;  // no pass, no message
    const size_t place = place_of(c.actions, *action);
    if (is_recv(*action)) {
      const bool posted = c.actions[place].posted;
      if (posted && passed[place] < next)
        return fmt::format(
            "rank {}: {} begins after {}: a posted recv must begin in its place, or earlier",
            c.rank(), to_string(c.actions[place]), to_string(wanted[next - 1]));
      if (!posted && passed[place] > next)
        return fmt::format(
            "rank {}: {} begins before {}: a recv that is not posted must begin in its place",
            c.rank(), to_string(c.actions[place]), to_string(wanted[next]));
      continue;
    }
    if (next == wanted.size() || wanted[next].kind != action->kind ||
        wanted[next].microbatch != action->microbatch)
      return fmt::format(
          "rank {}: {} where {} should be: {}\nits actions are {}", c.rank(), to_string(*action),
          next == wanted.size() ? "nothing more" : to_string(wanted[next]),
          is_send(action->kind)
              ? "the tag of a message is its microbatch, and a send begins in its place"
              : "is every pass done in its place? Microbatch k has number k in stage.forward and "
                "stage.backward, and a send that is listed before a pass must begin before it",
          in_words(c.actions));
    ++next;
  }
  if (next < wanted.size())
    return fmt::format("rank {} never does {}: every action must be done, whatever the targets are",
                       c.rank(), to_string(wanted[next]));
  return "";
}

std::string foreign_collective(const Course& c) {
  for (const Operation& operation : c.operations)
    if (is_collective(operation.kind) && !is_split(operation))
      return fmt::format("rank {} calls {}: the messages of its actions are all that is needed",
                         c.rank(), op_name(operation.kind));
  return "";
}

/// The first action that begins while `send` is pending; null if there is none. A posted recv may
/// begin at any time before its place.
const Operation* begun_during(const Operation& send, const Course& c) {
  for (const Operation& other : c.operations) {
    const std::optional<Action> action = action_of(other, c.rank());
    if (!action || other.id <= send.id || other.begin_ns >= send.end_ns) continue;
    if (!is_recv(*action) || !c.actions[place_of(c.actions, *action)].posted) return &other;
  }
  return nullptr;
}

}  // namespace

std::string wrong_course(const Course& c) {
  if (std::string wrong = foreign_collective(c); !wrong.empty()) return wrong;
  std::string wrong =
      wrong_messages(c.rank(), c.first_rank, messages_of(c.operations, c.first_rank), c.messages);
  return wrong.empty() ? wrong_order(c) : wrong;
}

std::string wrong_waits(const Course& c) {
  for (const Operation& send : c.operations) {
    if (send.kind != OpKind::kSend) continue;
    const Action action = c.actions[place_of(c.actions, *action_of(send, c.rank()))];
    const Operation* next = action.posted ? nullptr : begun_during(send, c);
    if (next == nullptr) continue;
    return fmt::format(
        "rank {0}: {1} is not posted, but {2} begins before it is done. Only a posted send, {1}*, "
        "may still be pending when the next action begins; otherwise a program that must deadlock "
        "would finish here",
        c.rank(), to_string(action), to_string(*action_of(*next, c.rank())));
  }
  return "";
}

namespace {

/// A stage of a wave that hangs.
class Standstill {
 public:
  explicit Standstill(const Course& course) : c_(course), begun_(course.actions.size(), false) {
    for (const Operation& operation : c_.operations) {
      if (operation.state == OpState::kWaiting) waiting_ = &operation;
      const std::optional<Action> action = action_of(operation, c_.rank());
      const size_t place = action ? place_of(c_.actions, *action) : begun_.size();
      if (place < begun_.size()) begun_[place] = true;
    }
    next_ = static_cast<size_t>(std::ranges::find(begun_, false) - begun_.begin());
  }

  /// What this stage does otherwise than its actions say; empty if nothing.
  std::string fault() const {
    if (std::string wrong = wrong_size(); !wrong.empty()) return wrong;
    if (waiting_ == nullptr)
      return c_.returned && next_ < begun_.size()
                 ? fmt::format(
                       "rank {} has returned without {}: every action of its list must be done, "
                       "whatever the targets and total_targets are",
                       c_.rank(), name(next_))
                 : "";
    if (is_collective(waiting_->kind))
      return fmt::format("rank {} waits in {}: the messages of its actions are all that is needed",
                         c_.rank(), op_name(waiting_->kind));
    const std::optional<Action> action = action_of(*waiting_, c_.rank());
    const size_t place = action ? place_of(c_.actions, *action) : begun_.size();
    if (place == begun_.size())
      return fmt::format(
          "rank {} waits in {}, which is none of its actions: the tag must be the microbatch, and "
          "the peer a neighbouring stage",
          c_.rank(), lab::grading::in_words({*waiting_}));
    return is_send(action->kind) ? fault_of_send(place) : fault_of_recv(place);
  }

  /// "rank 1 is at F0, action 2 of 7: it waits for <F0*"
  std::string place() const {
    std::string text = fmt::format("rank {}", c_.rank());
    text += next_ == begun_.size()
                ? (c_.returned ? " is done" : " has begun all of its actions")
                : fmt::format(" is at {}, action {} of {}", name(next_), next_ + 1, begun_.size());
    const std::optional<Action> action =
        waiting_ == nullptr ? std::nullopt : action_of(*waiting_, c_.rank());
    if (action) {
      const size_t waits_for = place_of(c_.actions, *action);
      text +=
          ", and waits for " + (waits_for < begun_.size() ? name(waits_for) : to_string(*action));
    }
    return text;
  }

 private:
  std::string name(size_t place) const { return to_string(c_.actions[place]); }

  std::string wrong_size() const {
    for (const Operation& operation : c_.operations)
      for (const Message& right : c_.messages)
        if (is_message(operation.kind) && right.recv == (operation.kind == OpKind::kRecv) &&
            right.peer == operation.peer - c_.first_rank && right.tag == operation.tag &&
            right.bytes != operation.bytes)
          return wrong_bytes(c_.rank(), operation.peer,
                             {right.recv, right.peer, right.tag, operation.bytes}, right.bytes);
    return "";
  }

  std::string fault_of_send(size_t place) const {
    if (next_ < place) return skipped(place);
    if (!c_.actions[place].posted || next_ == begun_.size()) return "";
    return fmt::format(
        "{} is posted: the stage goes on, and waits at the end, when all actions "
        "are done; rank {} waits for it before {}",
        name(place), c_.rank(), name(next_));
  }

  std::string fault_of_recv(size_t place) const {
    const size_t reader = place_of(c_.actions, reader_of(c_.actions[place]));
    if (next_ == reader) return "";
    if (!c_.actions[place].posted) return next_ < place ? skipped(place) : "";
    if (next_ > reader) return "";
    if (next_ < place && c_.actions[next_].kind == c_.actions[place].kind) return skipped(place);
    return fmt::format(
        "{} is posted: the stage goes on, and waits for it where {} begins, which "
        "reads it; rank {} waits for it before {}",
        name(place), name(reader), c_.rank(), name(next_));
  }

  std::string skipped(size_t place) const {
    return fmt::format(
        "rank {} waits in {}, but has not begun {}, which comes before it in its list: actions "
        "must begin one after the other{}",
        c_.rank(), name(place), name(next_),
        c_.actions[next_].kind == c_.actions[place].kind
            ? ", and the tag of a message is its microbatch"
            : "");
  }

  const Course& c_;
  std::vector<bool> begun_;             // by action
  const Operation* waiting_ = nullptr;  // what the stage waits for
  size_t next_ = 0;                     // the first action that has not begun
};

/// The line after the circle advises changing the program. Where a stage departs from its actions,
/// the actions are right and the executor is wrong.
std::string without_advice(const std::string& diagnosis) {
  const size_t advice = diagnosis.find('\n', diagnosis.find("circle: rank "));
  if (advice == std::string::npos) return diagnosis;
  const size_t end = diagnosis.find('\n', advice + 1);
  return diagnosis.substr(0, advice) + (end == std::string::npos ? "" : diagnosis.substr(end));
}

}  // namespace

std::string why_they_stand_still(const std::vector<Course>& courses, const std::string& diagnosis) {
  std::string fault;
  std::string places;
  for (const Course& course : courses) {
    const Standstill stage(course);
    if (fault.empty()) fault = stage.fault();
    places += "\n  " + stage.place();
  }
  return (fault.empty() ? diagnosis : fault + "\n" + without_advice(diagnosis)) +
         "\naccording to the lists of actions:" + places;
}

}  // namespace lab05
