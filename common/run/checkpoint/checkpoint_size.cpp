// Compares a model's sizes with the size of its file.
#include "common/run/checkpoint/checkpoint_size.h"

#include "common/error.h"

namespace lab {
namespace {

// Allowed for any file: 4 MiB of weights, 64 MiB of angles.
constexpr double kSmallModel = 1 << 20;
constexpr double kSmallTable = 1 << 24;

}  // namespace

void require_proportion(const LlamaConfig& config, double held,
                        const std::filesystem::path& weights, const char* said_by) {
  const auto described = static_cast<double>(parameter_count(config));
  require(described < 4.0 * held + kSmallModel,
          "{}: holds {:.0f} weights, but {} describes a model of {:.0f}", weights.string(), held,
          said_by, described);
  const auto angles = static_cast<double>(config.context * config.head_dim());
  require(angles <= 4.0 * held + kSmallTable,
          "{}: holds {:.0f} weights, but {} describes a context of {} positions with {} angles "
          "each: far too long for it",
          weights.string(), held, said_by, config.context, config.head_dim());
}

}  // namespace lab
