// Mutants: wrong solutions that the tests of a lab must find, and correct ones that they must pass.
//
// One file a lab, tests/labs/NN_name/mutants.txt. An entry says what it changes in the solution:
//
//   # backward_overwrites
//   task: 3.GradientsAddUp
//   message: the gradients that were there before are gone
//   why: assigns where it should add
//   <<<<
//   lines of the solution, which must occur there exactly once
//   ====
//   lines in their place
//   >>>>
//
// After the task comes the test that is tried first; without it, or if it does not find the
// mistake, the whole task is tested. "task: none" marks a correct solution. There may be several
// edits.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/grading/starter.h"

namespace lab::grading {

struct Mutant {
  std::string name;
  std::vector<std::string> tasks = {};  // that must fail; none: a correct solution
  std::vector<std::string> tests = {};  // "3.GradientsAddUp", or "3": where to look first
  std::string message = {};             // must occur in a failure of each of them
  struct Edit {
    std::string find;
    std::string replace;
  };
  std::vector<Edit> edits = {};

  bool is_correct() const { return tasks.empty(); }
  /// `solution` with the edits. Throws Error if a text to find is not there exactly once.
  std::string apply(const std::string& solution) const;
  /// Which of these tasks the edits belong to: the solution says "// Task 2" above its functions.
  /// None: at least one edit is above them all, in what several tasks may use.
  std::vector<std::string> edited_tasks(const std::string& solution,
                                        const std::vector<std::string>& all_tasks) const;
};

/// Throws Error that names the line.
std::vector<Mutant> read_mutants(const std::filesystem::path& file);

/// Empty if exactly the mutant's tasks fail, with its message; else what is wrong.
std::string check_mutant(const Mutant& mutant, const TaskResults& results);

}  // namespace lab::grading
