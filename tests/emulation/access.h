// Every access to memory that instrumented code makes comes through here.
#pragma once

#include <cstddef>

namespace lab::emulation {

/// An atomic operation of the running thread on `bytes` bytes.
void atomic_access(const void* address, size_t bytes);

/// Finds out where things lie; called before a kernel runs.
void prepare_access_checks();

}  // namespace lab::emulation
