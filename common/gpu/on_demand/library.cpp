#include "common/gpu/on_demand/library.h"

#include <dlfcn.h>

#include "common/error.h"

namespace lab::on_demand {

Library::Library(const std::string& file, const std::string& folder, const std::string& remedy)
    : file_(file), handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) handle_ = dlopen((folder + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) fail("{}; {}", dlerror(), remedy);
}

void* Library::address_of(const char* function) const {
  void* address = dlsym(handle_, function);
  require(address != nullptr,
          "{} has no {}: use the version of this library that the program was built with", file_,
          function);
  return address;
}

}  // namespace lab::on_demand
