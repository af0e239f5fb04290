// Libraries that are loaded by their first call.
#include <gtest/gtest.h>

#include <string>

#include "common/gpu/on_demand/library.h"
#include "tests/unit/error_of.h"

namespace lab::on_demand::on_demand_test {
namespace {

TEST(OnDemand, PassesCallsOn) {
  const Library library("libm.so.6", "/nowhere", "");
  EXPECT_EQ(library.call<double>("ldexp", 3.0, 4), 48.0);
}

TEST(OnDemand, SaysInOneLineWhatIsMissing) {
  const std::string message =
      error_of([] { const Library library("libnothing.so.7", "/nowhere", "install nothing"); });
  EXPECT_NE(message.find("/nowhere/libnothing.so.7: "), std::string::npos) << message;
  EXPECT_NE(message.find("; install nothing"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(OnDemand, NamesTheFunctionThatAnOlderLibraryLacks) {
  const Library library("libm.so.6", "/nowhere", "");
  const std::string message = error_of([&] { library.call<int>("no_such_function"); });
  EXPECT_NE(message.find("libm.so.6 has no no_such_function: "), std::string::npos) << message;
}

}  // namespace
}  // namespace lab::on_demand::on_demand_test
