// Compiled anew for each program; cmake/AddLab.cmake says which it is.
#include "common/run/report/whose_labs.h"

namespace lab {

const char* const kWhoseLabs = LAB_WHOSE;

}  // namespace lab
