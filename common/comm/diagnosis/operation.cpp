#include "common/comm/diagnosis/operation.h"

#include <array>

namespace lab {

std::string_view op_name(OpKind kind) {
  static constexpr std::array<std::string_view, kOpKinds> kNames{
      "send",           "recv",  "barrier", "broadcast", "reduce", "all_reduce", "all_gather",
      "reduce_scatter", "split", "forward", "backward",  "loss",   "optimizer",  "add"};
  return kNames.at(static_cast<size_t>(kind));
}

}  // namespace lab
