// Descriptor: a file descriptor with an owner.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/error.h"

namespace lab {

/// Closes a descriptor when its scope ends; -1 holds none.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  /// Hands it over to the caller.
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// The ends of a pipe, for reading and for writing; programs that are started do not inherit them.
/// Throws Error if there are too many open files.
inline std::pair<Descriptor, Descriptor> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot create a pipe: {}", std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace lab
