// Names of places in memory, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "shadow.h"

namespace lab::emulation {

/// "part[3]": the variable nearest to the address, indexed in units of `bytes`.
std::string describe_shared(uintptr_t address, size_t bytes);
/// "dynamic shared memory, float-sized index": "dynamic shared memory [40]".
std::string describe_dynamic(uintptr_t address, size_t bytes);
/// "argument 2 [96]": by the kernel's arguments that point into the same allocation.
std::string describe_device(uintptr_t address, size_t bytes);
/// "thread (3,0,0)", with its block if that is another one.
std::string describe_thread(Record record);
/// " at scale.cu:12": the source line of an instruction, or nothing if that cannot be found.
std::string source_line(const void* instruction);

}  // namespace lab::emulation
