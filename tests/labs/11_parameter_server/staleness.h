// Task 2: the rule, and others that it may be mistaken for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/labs/11_parameter_server/history.h"

namespace lab11 {

/// A bound, for messages: "unbounded" if it is kUnbounded.
inline constexpr int64_t kUnbounded = int64_t{1} << 62;
std::string bound_in_words(int64_t s);

/// A state in which may_start was asked, with the answer.
struct Asked {
  int64_t n = 1;
  int64_t s = 0;
  int64_t items = int64_t{1} << 50;
  State state = {};
  bool answer = false;
};
using Answers = std::vector<Asked>;

/// Ends the test as failed if the last answer is wrong; the message names another rule that gives
/// all of these answers. `where` is added.
void judge_last(const Answers& asked, const std::string& where);

/// The same for many states: all answers must be right.
void judge_all(const Answers& asked);

}  // namespace lab11
