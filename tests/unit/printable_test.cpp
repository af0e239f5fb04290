// What messages show of text from elsewhere.
#include "common/printable.h"

#include <gtest/gtest.h>

namespace lab::printable_test {
namespace {

TEST(Printable, EscapesWhatCouldPoseAsAMessage) {
  EXPECT_EQ(printable("a weight.0"), "a weight.0");
  EXPECT_EQ(printable("F\nerror: \x1b[31m"), "F\\x0aerror: \\x1b[31m");
  EXPECT_EQ(printable(std::string_view("\0\xff", 2)), "\\x00\\xff");
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(printable(std::string(60, 'x')), std::string(60, 'x'));
  const std::string cut = printable(std::string(1 << 20, 'x'));
  EXPECT_EQ(cut.size(), 63U);
  EXPECT_TRUE(cut.ends_with("xxx...")) << cut;
}

}  // namespace
}  // namespace lab::printable_test
