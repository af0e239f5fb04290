// What the launcher writes, where nobody may read it.
#include "common/run/launch/prefix_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/run/launch/signal_queue.h"

namespace lab::prefix_output_test {
namespace {

class Writing : public testing::Test {
 protected:
  Writing() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Writing() override {
    close_end(0);
    close_end(1);
    close(stop_);
  }
  void close_end(size_t i) {
    if (ends_[i] >= 0) close(ends_[i]);
    ends_[i] = -1;
  }

  const SignalQueue signals_;  // no SIGPIPE
  std::array<int, 2> ends_{-1, -1};
  int stop_ = eventfd(0, EFD_CLOEXEC);
};

TEST_F(Writing, GoesWhereSomebodyReads) {
  EXPECT_EQ(write_all(ends_[1], "hello", stop_), 0);
  std::array<char, 5> text{};
  EXPECT_EQ(read(ends_[0], text.data(), text.size()), 5);
  EXPECT_EQ(std::string(text.data(), text.size()), "hello");
}

TEST_F(Writing, EndsWhereNobodyReads) {
  close_end(0);
  EXPECT_EQ(write_all(ends_[1], "hello", stop_), EPIPE);
}

TEST_F(Writing, EndsWhereNothingIsOpen) {
  const int descriptor = ends_[1];
  close_end(1);
  EXPECT_EQ(write_all(descriptor, "hello", stop_), EPIPE);
}

TEST_F(Writing, SaysWhatLosesIt) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(write_all(full, "hello", stop_), ENOSPC);
  close(full);
}

TEST_F(Writing, GivesUpWhenItIsToStop) {
  const std::string more_than_fits(1 << 20, 'x');
  eventfd_write(stop_, 1);
  EXPECT_EQ(write_all(ends_[1], more_than_fits, stop_), 0);
}

}  // namespace
}  // namespace lab::prefix_output_test
