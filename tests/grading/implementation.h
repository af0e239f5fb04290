// The implementation under test: one shared object with a student's file, the solution or a mutant,
// loaded by a lab's rank program.
//
// The rank program defines every function of the lab's contract itself, as a dispatcher:
//
//   void average_gradients(Gradients gradients, int64_t targets, ProcessGroup& world) {
//     if (is_given("3")) return given_3::average_gradients(gradients, targets, world);
//     own(&average_gradients)(gradients, targets, world);
//   }
//
// The shared object's calls of the contract's functions come here as well, even those within its
// own file: so a task that builds on another can be given a correct one, and tests see which code
// calls what.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace lab::grading {

/// Loads `file`, `copies` times: simulated ranks are threads of one process, and each needs its own
/// static variables. Throws Error if it cannot be loaded.
void load_implementation(const std::filesystem::path& file, int copies);

/// Which copy the functions of this thread come from; 0 unless set.
void use_copy(int copy);

/// Tasks whose functions are replaced by correct ones from now on, on every rank.
void set_given(std::set<std::string> tasks);
bool is_given(const std::string& task);

/// The correct functions of task 3 are in the namespace `given_3` with all that only they need, and
/// those that dispatchers call begin with LAB_GIVEN. So ./workbook grade finds their machine code,
/// and removes it from the rank program of every job that is not given this task
/// (scripts/grade_given.py): a student's file cannot call what is not there.
#define LAB_GIVEN [[gnu::noinline]]

/// The symbol in this thread's copy that has the same name as the function at `declared`. Throws
/// Error if the implementation does not define it.
void* own_symbol(void* declared);

/// The implementation's version of a function of the contract.
template <typename Function>
Function* own(Function* declared) {
  return reinterpret_cast<Function*>(own_symbol(reinterpret_cast<void*>(declared)));
}

}  // namespace lab::grading
