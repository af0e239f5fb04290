// What the tests of the emulation share: a fresh state, and all orders.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "tests/emulation/emulation.h"

namespace lab::emulation {

class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override {
    EXPECT_NO_THROW(check());
    reset();
  }
};

/// Runs the body with threads, blocks and streams in several orders.
template <typename F>
void in_all_orders(F body) {
  const std::pair<Order, uint64_t> orders[] = {{Order::kAscending, 0},
                                               {Order::kDescending, 0},
                                               {Order::kShuffled, 1},
                                               {Order::kShuffled, 2}};
  for (const auto& [order, seed] : orders) {
    SCOPED_TRACE(::testing::Message() << "order " << static_cast<int>(order) << " seed " << seed);
    set_order(order, seed);
    body();
  }
  set_order(Order::kAscending);
}

/// The message of the KernelError that the body ends with, or nothing.
template <typename F>
std::string kernel_error_of(F body) {
  try {
    body();
  } catch (const KernelError& error) {
    return error.what();
  }
  return {};
}

/// Fails unless the text holds all the parts and is one line.
inline void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\nin: " << text;
  }
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

}  // namespace lab::emulation
