// A shared library that a process loads when it first calls one of its functions.
//
// Loading cuBLAS takes 80 ms of processor time and 150 MiB of memory (docs/measurements.md), and a
// rank on a CPU never calls it. So programs are linked with neither cuBLAS nor NCCL: cublas.cpp and
// nccl.cpp define the functions of theirs that the workbook calls, and each passes its call on to
// the library.
#pragma once

#include <string>

namespace lab::on_demand {

class Library {
 public:
  /// Loads `file`, such as "libnccl.so.2", from where the loader searches (LD_LIBRARY_PATH, the
  /// system's folders), else from `folder`. It stays loaded. Throws Error if that fails: the
  /// loader's reason, then `remedy`.
  Library(const std::string& file, const std::string& folder, const std::string& remedy);

  /// Calls a function of the library. The types must be those of its parameters: nothing checks
  /// them. Throws Error if the library has no function of that name.
  template <typename Result, typename... Args>
  Result call(const char* function, Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(address_of(function))(args...);
  }

 private:
  void* address_of(const char* function) const;

  std::string file_;
  void* handle_;
};

}  // namespace lab::on_demand
