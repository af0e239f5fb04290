// Agreement of the ranks on what they are about to do.
#include "common/train/several_ranks.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace lab {

void agree_on_options(Job& job, const TrainOptions& options) {
  constexpr std::array<std::string_view, 7> kOwnAffair = {
      "threads", "data", "tokenizer", "cache", "prompt", "story_tokens", "program"};
  const nlohmann::json values = options_to_json(options);
  for (const auto& [name, value] : values.items())
    if (std::ranges::find(kOwnAffair, name) == kOwnAffair.end())
      job.agree("option " + name, value.dump());
  for (const auto& [name, value] : options.program)
    job.agree("option " + name.substr(name.find_first_not_of('-')), value);
  job.agree("option resume", options.resume ? "yes" : "no");
}

TokenDataset open_data(Job& job, const Tokenizer& tokenizer, const TrainOptions& options) {
  const bool first = job.environment().local_rank == 0;
  if (!first) job.world().barrier();
  TokenDataset data(options.data, tokenizer, options.cache);
  if (first) job.world().barrier();
  job.agree("corpus (its checksum)", fmt::format("{:016x}", data.fingerprint()));
  return data;
}

int64_t target_count(std::span<const TokenBatch> microbatches) {
  int64_t count = 0;
  for (const TokenBatch& batch : microbatches) count += batch.target_count();
  return count;
}

}  // namespace lab
