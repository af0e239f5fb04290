// The error in the place of code that a student has yet to write.
#pragma once

#include <string>

#include "common/error.h"

namespace lab {

/// Thrown by a task that nobody has written yet.
class NotImplemented : public Error {
 public:
  using Error::Error;
};

/// Replace this call by your code. `task`: as in the handout, "1a"; `file`: where the TODO is.
[[noreturn]] inline void not_implemented(const std::string& task, const std::string& file) {
  throw NotImplemented(fmt::format("task {} is not written yet: {}, TODO({})", task, file, task));
}

}  // namespace lab
