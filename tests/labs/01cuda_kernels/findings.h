// The findings of the emulation, in words of the lesson.
#pragma once

#include <string>

namespace lab01cuda {

/// First line: what it means; second: the finding itself, which names thread and line.
std::string explain_finding(const std::string& finding);

}  // namespace lab01cuda
