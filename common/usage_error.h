// The error for a command line or an environment that makes no sense.
#pragma once

#include "common/error.h"

namespace lab {

/// Programs exit with code 2, as for an unknown option.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace lab
