// Descriptor: a file descriptor with an owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace lab {

/// Closes a descriptor when its scope ends; -1 holds none.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }
  /// Hands it over to the caller.
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

}  // namespace lab
