// Serving: who gets which answer when, over whatever network the requests come.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "common/comm/server/messages.h"

namespace lab {

/// What a parameter server decides.
struct ServerHooks {
  std::function<std::optional<Ticket>(int worker)> pull;  // nothing: not now
  std::function<void(const Push& push)> push;
  std::function<void(int worker)> leave;
  std::function<bool()> finished;
  std::function<Tensor()> weights;  // a copy of the present ones, which later updates leave alone
};

/// Asks the hooks, and keeps workers waiting whose pull has no answer yet: they are asked about
/// again, in the order in which they came, whenever something has changed. One thread uses it.
class Serving {
 public:
  explicit Serving(ServerHooks hooks) : hooks_(std::move(hooks)) {}

  /// An answer that is due now. `tag` is that of the request.
  struct Answer {
    int worker = 0;
    int64_t tag = 0;
    Reply reply = {};
  };
  std::vector<Answer> on_request(int worker, int64_t tag, const Request& request);
  /// The worker is gone, or seems to be.
  std::vector<Answer> on_leave(int worker);

 private:
  struct Waiting {
    int worker = 0;
    int64_t tag = 0;
  };
  void answer_waiting(std::vector<Answer>& answers);

  ServerHooks hooks_;
  std::deque<Waiting> waiting_;
};

}  // namespace lab
