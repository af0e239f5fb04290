// Reads /proc.
#include "common/run/rendezvous/process_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace lab {

ProcessState process_state(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return ProcessState::kGone;
  const size_t name_end = text.rfind(')');  // "4711 (any name) S 1 ..."
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return ProcessState::kGone;
  switch (text[name_end + 2]) {
    case 'Z':
    case 'X':
      return ProcessState::kGone;
    case 'T':
      return ProcessState::kStopped;
    case 't':
      return ProcessState::kTraced;
    default:
      return ProcessState::kRunning;
  }
}

std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  const auto space = std::filesystem::read_symlink("/proc/self/ns/pid", ignored);
  return boot + " " + space.string();
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace lab
