// How small functions of these headers are declared.
#pragma once

/// Always inline: a function that is also compiled without checks, in another file, might otherwise
/// be linked instead of the checked one, and its accesses would go unseen.
#define LAB_EMULATION_INLINE inline __attribute__((always_inline))
