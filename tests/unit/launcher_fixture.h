// A launcher with ranks that go wrong as they are told (launch_child.cpp), in a place of its own.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/program_run.h"

namespace lab {

class Launcher : public testing::Test {
 protected:
  std::vector<std::string> command(const std::string& scenario, int ranks, int who = 1) const {
    return {LAUNCH_CHILD,        scenario, "--ranks",    std::to_string(ranks), "--who",
            std::to_string(who), "--lock", place_.lock()};
  }
  ProgramRun start(const std::string& scenario, int ranks, int who = 1) const {
    return ProgramRun(command(scenario, ranks, who), place_.environment());
  }
  /// Runs a scenario to its end, which leaves nothing.
  int run(const std::string& scenario, int ranks, int who = 1) {
    ProgramRun program = start(scenario, ranks, who);
    const int code = program.wait(kSoon);
    output_ = program.output();
    place_.expect_nothing_left();
    return code;
  }
  bool said(const std::string& text) const { return output_.find(text) != std::string::npos; }

  static constexpr double kSoon = 10;  // seconds
  CleanPlace place_;
  std::string output_;
};

}  // namespace lab
