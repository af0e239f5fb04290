// Every call of NCCL goes through here: a failure becomes an Error that says which call, for what,
// why, and what to do about it.
#pragma once

#include <fmt/format.h>
#include <nccl.h>

#include <string>
#include <utility>

namespace lab::nccl {

/// NCCL's own words, the last error it recorded, and what to do about it.
std::string explain(ncclResult_t status, ncclComm_t communicator = nullptr);

[[noreturn]] void fail_call(ncclResult_t status, const char* call, const std::string& purpose);

/// Throws Error unless the call succeeded. `purpose` says what it was for. A call that NCCL
/// continues in the background (ncclInProgress) has not failed.
template <typename... Args>
void check(ncclResult_t status, const char* call, fmt::format_string<Args...> purpose,
           Args&&... args) {
  if (status != ncclSuccess && status != ncclInProgress)
    fail_call(status, call, fmt::format(purpose, std::forward<Args>(args)...));
}

}  // namespace lab::nccl
