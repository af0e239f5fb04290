// Whose labs a program was linked from.
#pragma once

namespace lab {

/// "solution": the reference's. "student": the student's own, on the solutions of the labs before.
/// "mine": all of them the student's own.
extern const char* const kWhoseLabs;

}  // namespace lab
