// Headers that nearly every file here and in the tests includes: GCC parses them once for all files
// (see target_precompile_headers). Nothing may rely on it: every file includes what it uses, and
// ./workbook lint checks that by reading files without it. Neither CLI11 nor nlohmann/json belongs
// here: they would cost every file more than they save a few.
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
