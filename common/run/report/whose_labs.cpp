// Compiled separately for each program; cmake/AddLab.cmake defines the value.
#include "common/run/report/whose_labs.h"

namespace lab {

const char* const kWhoseLabs = LAB_WHOSE;

}  // namespace lab
