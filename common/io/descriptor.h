// Descriptor: a file descriptor with an owner.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
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

/// Appends what has arrived in a pipe that does not block, and closes it at its end; at most a
/// megabyte, so that a flood cannot keep the caller busy.
inline void read_available(Descriptor& pipe, std::string& text) {
  std::array<char, 16384> buffer;
  for (int i = 0; i < 64 && pipe; ++i) {
    const ssize_t count = read(pipe.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count > 0)
      text.append(buffer.data(), static_cast<size_t>(count));
    else
      pipe = Descriptor();
  }
}

}  // namespace lab
