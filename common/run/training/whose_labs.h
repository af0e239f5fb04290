// Whose labs a program was linked with.
#pragma once

namespace lab {

/// "solution": the reference's. "student": the student's own lab, on the solutions of the earlier
/// ones. "mine": all labs are the student's own.
extern const char* const kWhoseLabs;

}  // namespace lab
