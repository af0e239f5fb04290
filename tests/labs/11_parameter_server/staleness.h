// Task 2: the rule, and others that it may be mistaken for.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/labs/11_parameter_server/history.h"

namespace lab11 {

/// A bound, for messages: "unbounded" if it is kUnbounded.
std::string bound_in_words(int64_t s);

/// States in which may_start was asked, with the answers.
using Answers = std::vector<std::pair<State, bool>>;

/// Ends the test as failed if the last answer is wrong; the message names another rule that gives
/// all of these answers. `where` is added.
void judge_may_start(int64_t n, int64_t s, const Answers& answers, const std::string& where);

/// The same for many states with their own n and s: the rule must give all answers.
struct Asked {
  int64_t n = 1;
  int64_t s = 0;
  State state = {};
  bool answer = false;
};
void judge_all(const std::vector<Asked>& asked);

}  // namespace lab11
