// Serving: answers the requests of workers, at once or when there is work, over any network.
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
  std::function<Tensor()> weights;  // a copy of the current ones; later updates do not change it
};

/// Passes requests to the hooks. Pulls that the hooks leave unanswered are kept and retried after
/// every change, in the order of arrival. Not thread-safe.
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
  /// Call it when a worker is gone, or seems to be.
  std::vector<Answer> on_leave(int worker);
  bool finished() const { return hooks_.finished(); }

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
