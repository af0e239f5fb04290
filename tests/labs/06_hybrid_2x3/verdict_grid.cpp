// Ranks and operations in words.
#include "tests/labs/06_hybrid_2x3/verdict_grid.h"

#include <fmt/format.h>

namespace lab06 {

std::string Grid::name(size_t rank) const {
  return fmt::format("rank {} (stage {} of pipeline {})", rank, stage(rank), pipeline(rank));
}

void Grid::set(lab::grading::Parcel& input) const {
  input.set("dp", dp);
  input.set("pp", pp);
}

std::vector<Operation> operations(const lab::grading::Parcel& result, const std::string& entry) {
  const Numbers numbers = result.numbers(entry);
  std::vector<Operation> all;
  for (size_t i = 0; i + 6 < numbers.size(); i += 7)
    all.push_back({.kind = static_cast<lab::OpKind>(numbers[i]),
                   .group = static_cast<Operation::Group>(numbers[i + 1]),
                   .peer = static_cast<int>(numbers[i + 2]),
                   .tag = static_cast<int>(numbers[i + 3]),
                   .bytes = numbers[i + 4],
                   .posted = numbers[i + 5],
                   .done = numbers[i + 6]});
  return all;
}

std::string in_words(const Operation& operation) {
  const char* where = operation.group == Operation::Group::kPipeline   ? "in the pipeline"
                      : operation.group == Operation::Group::kReplicas ? "among the replicas"
                      : operation.group == Operation::Group::kWorld    ? "in the world"
                                                                       : "in a group of its own";
  return fmt::format("{} of {} bytes {}", lab::op_name(operation.kind), operation.bytes, where);
}

std::string list(const Numbers& numbers) {
  std::string text;
  for (double number : numbers) text += fmt::format("{}{}", text.empty() ? "" : " ", number);
  return text.empty() ? "none" : text;
}

}  // namespace lab06
