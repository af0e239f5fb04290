// Correct versions of tasks 1 to 4, which replace the student's in the tests of other tasks.
#pragma once

#include "labs/11_parameter_server/parameter_server.h"

namespace lab11 {

namespace given_1 {
bool on_push(Server& server, const lab::Push& push);
}

namespace given_2 {
bool may_start(const Server& server);
}

namespace given_3 {
std::optional<lab::Ticket> on_pull(Server& server, int worker);
void on_leave(Server& server, int worker);
}  // namespace given_3

namespace given_4 {
lab::Request on_reply(Worker& worker, const lab::Reply& reply, const Compute& compute);
}

}  // namespace lab11
