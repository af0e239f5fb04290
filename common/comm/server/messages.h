// What workers and a parameter server tell each other (lab 11).
#pragma once

#include <cstdint>

#include "common/tensor/tensor.h"

namespace lab {

/// One piece of work, handed to one worker.
struct Ticket {
  int64_t number = 0;   // no two tickets of a server have the same
  int64_t item = 0;     // which data: item k is the k-th microbatch of the run
  int64_t version = 0;  // of the weights that come with it: the updates made so far
};

/// What a worker computes for a ticket.
struct Gradient {
  Tensor mean = {};     // over `samples` targets; flat
  int64_t samples = 0;  // may be 0; then the gradient is 0
  double loss = 0;      // mean over these targets, for the log
};

struct Push {
  int64_t ticket = 0;  // its number
  Gradient gradient = {};
};

/// From a worker. A request that stays without an answer may be sent again.
struct Request {
  enum class Kind {
    kPull,  // "give me work"
    kPush,
    kStop,  // not sent: the worker is done
  };
  Kind kind = Kind::kPull;
  Push push = {};
};

/// To a worker.
struct Reply {
  enum class Kind {
    kNothing,  // no answer in time: lost, late, or the server has no work yet
    kWork,     // to a pull
    kTaken,    // to a push, even if the ticket was no longer valid
    kDone,     // to a pull: there will be no more work
  };
  Kind kind = Kind::kNothing;
  Ticket ticket = {};
  Tensor weights = {};  // flat; of ticket.version
};

}  // namespace lab
