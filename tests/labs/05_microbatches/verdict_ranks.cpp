// Judging what the ranks of a pipeline returned.
#include "tests/labs/05_microbatches/verdict_ranks.h"

#include <fmt/format.h>

#include "common/tensor/error.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab05 {

using lab::TokenBatch;
using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Parcel;

namespace {

/// Elements [begin, begin + size) of all that is expected.
Expected part_of(const Expected& whole, const std::vector<Mistake>& mistakes, size_t begin,
                 size_t size) {
  const auto cut = [&](const Numbers& values) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    return Numbers(first, first + static_cast<std::ptrdiff_t>(size));
  };
  Expected part = whole;
  part.values = cut(whole.values);
  part.tolerance = cut(whole.tolerance);
  part.name = [&whole, begin](size_t i) { return whole.name(begin + i); };
  for (const Mistake& mistake : mistakes)
    part.mistakes.push_back({cut(mistake.values), mistake.message});
  return part;
}

/// Those that explain the numbers of all ranks together; if there are none, all of them. On a
/// single rank one mistake may look like another.
std::vector<Mistake> likely(const std::vector<Mistake>& mistakes, const Expected& whole,
                            const std::vector<Parcel>& results, const std::string& entry) {
  const Numbers got = pipeline_tests::joined(pipeline_tests::tensors_of(results, entry));
  std::vector<Mistake> some;
  for (const Mistake& mistake : mistakes) {
    Expected expected = whole;
    expected.mistakes = {mistake};
    if (lab::grading::difference(got, expected).starts_with(mistake.message))
      some.push_back(mistake);
  }
  return some.empty() ? mistakes : some;
}

}  // namespace

std::vector<TokenBatch> tokens_for(size_t rank, size_t ranks,
                                   const std::vector<TokenBatch>& microbatches) {
  if (rank == 0 || rank + 1 == ranks) return microbatches;
  std::vector<TokenBatch> others;
  for (const TokenBatch& batch : microbatches)
    others.push_back(
        lab01::random_tokens(std::vector<int64_t>(static_cast<size_t>(batch.batch), batch.length),
                             batch.length, pipeline_tests::kVocab, 1000 * rank + others.size()));
  return others;
}

Parcel oracle(const std::string& scenario, const Parcel& input) {
  return lab::grading::reference_group(scenario, {input}, late(1))[0];
}

std::string difference_on_ranks(const Expected& whole, const std::vector<Mistake>& mistakes,
                                const std::vector<Parcel>& results, const std::string& entry,
                                const std::function<std::string(size_t)>& details) {
  std::string message;
  std::string right_ranks;
  size_t begin = whole.values.size();
  for (size_t rank = results.size(); rank-- > 0;) {
    const Numbers got = lab::grading::to_doubles(results[rank].tensor(entry));
    begin -= got.size();
    const std::string difference =
        lab::grading::difference(got, part_of(whole, mistakes, begin, got.size()));
    if (difference.empty())
      right_ranks = fmt::format("{}{}{}", rank, right_ranks.empty() ? "" : ", ", right_ranks);
    else if (message.empty())
      message = fmt::format("rank {}: {}{}", rank, difference, details ? details(rank) : "");
  }
  if (!message.empty() && !right_ranks.empty())
    message += fmt::format("\nright on rank {}", right_ranks);
  return message;
}

void expect_parts_of(const Expected& whole, const Mistakes& mistakes,
                     const std::vector<Parcel>& results, const std::string& entry,
                     const std::function<std::string(size_t)>& details) {
  size_t size = 0;
  for (const Parcel& result : results) size += result.tensor(entry).values().size();
  lab::require(size == whole.values.size(),
               "the stages together have {} numbers, the whole model {}", size,
               whole.values.size());
  if (difference_on_ranks(whole, {}, results, entry, details).empty()) return;
  lab::grading::stop(difference_on_ranks(whole, likely(mistakes(), whole, results, entry), results,
                                         entry, details));
}

void expect_losses(const std::vector<Parcel>& results, const std::string& entry,
                   const Expected& last) {
  const size_t end = results.size() - 1;
  for (size_t rank = 0; rank < end; ++rank)
    if (const double loss = results[rank].number(entry); loss != 0)
      lab::grading::stop(
          fmt::format("rank {} returns a loss of {:.7g}: only the last stage knows "
                      "one, the others return 0",
                      rank, loss));
  const std::string difference = lab::grading::difference(results[end].numbers(entry), last);
  if (!difference.empty()) lab::grading::stop(fmt::format("rank {}: {}", end, difference));
}

}  // namespace lab05
