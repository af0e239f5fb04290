// Words for messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "emulated/source_location.h"
#include "emulated/warp.h"

namespace lab::emulation {

/// "rms_norm.cu:31": the file without its folder.
inline std::string place(const SourceLocation& where) {
  std::string_view file = where.file;
  file.remove_prefix(file.rfind('/') + 1);
  return fmt::format("{}:{}", file, where.line);
}

inline bool same_place(const SourceLocation& a, const SourceLocation& b) {
  return a.line == b.line && std::string_view(a.file) == b.file;
}

inline const char* name_of(WarpOperation operation) {
  switch (operation) {
    case WarpOperation::kSync:
      return "__syncwarp";
    case WarpOperation::kShuffle:
      return "__shfl_sync";
    case WarpOperation::kShuffleUp:
      return "__shfl_up_sync";
    case WarpOperation::kShuffleDown:
      return "__shfl_down_sync";
    case WarpOperation::kShuffleXor:
      return "__shfl_xor_sync";
    case WarpOperation::kVote:
      return "a vote of the warp";
    case WarpOperation::kMultiply:
      return "mma.sync";
    case WarpOperation::kLoadMatrices:
      return "ldmatrix";
    case WarpOperation::kLoadMatricesTransposed:
      return "ldmatrix.trans";
    case WarpOperation::kNone:
      break;
  }
  return "nothing";
}

}  // namespace lab::emulation
