// What nearly every file here and of the tests includes: GCC reads it once for all (see
// target_precompile_headers). Nothing may rely on it: every file includes what it uses, which
// ./workbook lint checks by reading files without it. Neither CLI11 nor nlohmann/json belong here:
// they cost every file more than they save some.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>
