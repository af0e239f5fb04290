// Answers requests, and keeps the pulls that must wait.
#include "common/comm/server/serving.h"

#include <utility>

namespace lab {

std::vector<Serving::Answer> Serving::on_request(int worker, int64_t tag, const Request& request) {
  std::vector<Answer> answers;
  if (request.kind == Request::Kind::kPush) {
    hooks_.push(request.push);
    answers.push_back({.worker = worker, .tag = tag, .reply = {.kind = Reply::Kind::kTaken}});
  } else if (request.kind == Request::Kind::kPull) {
    std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.worker == worker; });
    waiting_.push_back({worker, tag});
  }
  answer_waiting(answers);
  return answers;
}

std::vector<Serving::Answer> Serving::on_leave(int worker) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.worker == worker; });
  hooks_.leave(worker);
  std::vector<Answer> answers;
  answer_waiting(answers);
  return answers;
}

void Serving::answer_waiting(std::vector<Answer>& answers) {
  std::deque<Waiting> still;
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    Answer answer{.worker = waiting.worker, .tag = waiting.tag};
    if (hooks_.finished()) {
      answer.reply.kind = Reply::Kind::kDone;
    } else if (const std::optional<Ticket> ticket = hooks_.pull(waiting.worker)) {
      answer.reply = {.kind = Reply::Kind::kWork, .ticket = *ticket, .weights = hooks_.weights()};
    } else {
      still.push_back(waiting);
      continue;
    }
    answers.push_back(std::move(answer));
  }
  waiting_ = std::move(still);
}

}  // namespace lab
