// Colour: for terminals, and on request.
#include "common/io/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/io/descriptor.h"

namespace lab::terminal_test {
namespace {

class Color : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    unsetenv("NO_COLOR");
    unsetenv("CLICOLOR_FORCE");
  }
  const Descriptor file_{open("/dev/null", O_WRONLY)};
};

TEST_F(Color, IsNotForFiles) { EXPECT_FALSE(wants_color(file_.get())); }

TEST_F(Color, CanBeAskedFor) {
  setenv("CLICOLOR_FORCE", "1", 1);
  EXPECT_TRUE(wants_color(file_.get()));
  setenv("CLICOLOR_FORCE", "0", 1);
  EXPECT_FALSE(wants_color(file_.get()));
}

TEST_F(Color, CanBeRefused) {
  setenv("CLICOLOR_FORCE", "1", 1);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(wants_color(file_.get()));
}

}  // namespace
}  // namespace lab::terminal_test
