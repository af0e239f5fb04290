// Loading shared objects, and finding in them what the rank program has under the same name.
#include "tests/grading/implementation.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/error.h"
#include "tests/grading/scratch_folder.h"

namespace lab::grading {
namespace {

struct Loaded {
  std::vector<void*> copies;
  std::set<std::string> given;
  std::mutex mutex;  // guards `symbols`: functions are called from parallel loops
  std::map<std::pair<int, void*>, void*> symbols;
};

Loaded& loaded() {
  static Loaded loaded;
  return loaded;
}

thread_local int current_copy = 0;

void* open_copy(const std::filesystem::path& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(handle != nullptr, "cannot load {}: {}", file.string(), handle ? "" : dlerror());
  return handle;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

}  // namespace

void load_implementation(const std::filesystem::path& file, int copies) {
  loaded().copies = {open_copy(file)};
  if (copies == 1) return;
  const ScratchFolder folder;  // dlopen knows files by their inode
  for (int copy = 1; copy < copies; ++copy) {
    const std::filesystem::path other = folder.path() / std::to_string(copy);
    std::filesystem::copy_file(file, other);
    loaded().copies.push_back(open_copy(other));
  }
}

void use_copy(int copy) { current_copy = copy; }

void set_given(std::set<std::string> tasks) { loaded().given = std::move(tasks); }

bool is_given(const std::string& task) { return loaded().given.contains(task); }

void* own_symbol(void* declared) {
  const std::lock_guard lock(loaded().mutex);
  void*& symbol = loaded().symbols[{current_copy, declared}];
  if (symbol != nullptr) return symbol;
  Dl_info info{};
  require(dladdr(declared, &info) != 0 && info.dli_sname != nullptr,
          "a function of the contract is not exported by the rank program");
  symbol = dlsym(loaded().copies.at(static_cast<size_t>(current_copy)), info.dli_sname);
  require(symbol != nullptr && symbol != declared, "the file does not define {}",
          demangled(info.dli_sname));
  return symbol;
}

}  // namespace lab::grading
