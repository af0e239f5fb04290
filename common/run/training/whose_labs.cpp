// Compiled separately for each program; cmake/AddLab.cmake defines the value.
#include "common/run/training/whose_labs.h"

namespace lab {

const char* const kWhoseLabs = LAB_WHOSE;

}  // namespace lab
