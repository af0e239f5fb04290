// Prints which device `--device auto` would choose here, and why; for ./workbook doctor.
#include <fmt/format.h>

#include "common/run/options/choose_device.h"
#include "common/run/options/main_guard.h"

namespace {

int tell(int /*argc*/, char** /*argv*/) {
  fmt::print("{}\n", lab::choose_device("auto").why);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, tell); }
