// What a rank did in a wave, and when, by its flight record: from rank program to verdict.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/comm/rank_snapshot.h"

namespace lab05 {

/// A message or a pass.
struct Operation {
  enum Kind { kSend, kRecv, kForward, kBackward };

  Kind kind = kSend;
  int peer = -1;       // of a message
  int microbatch = 0;  // of a message: its tag
  int64_t id = 0;      // 1, 2, ... in the order in which they begin
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // a posted message ends when it has been waited for
};

/// Six numbers each. Times count from the first of them, so that doubles hold them exactly.
inline std::vector<double> to_numbers(const std::vector<lab::OpRecord>& history) {
  std::vector<double> numbers;
  int64_t start = INT64_MAX;
  for (const lab::OpRecord& record : history) start = std::min(start, record.posted_ns);
  for (const lab::OpRecord& record : history) {
    const bool is_message = lab::is_message(record.kind);
    Operation::Kind kind = Operation::kSend;
    if (record.kind == lab::OpKind::kRecv)
      kind = Operation::kRecv;
    else if (record.kind == lab::OpKind::kForward)
      kind = Operation::kForward;
    else if (record.kind == lab::OpKind::kBackward)
      kind = Operation::kBackward;
    else if (!is_message)
      continue;
    numbers.insert(numbers.end(),
                   {static_cast<double>(kind), static_cast<double>(record.peer),
                    static_cast<double>(is_message ? record.tag : record.microbatch),
                    static_cast<double>(record.id), static_cast<double>(record.posted_ns - start),
                    static_cast<double>(record.done_ns - start)});
  }
  return numbers;
}

/// The inverse.
inline std::vector<Operation> operations_from(const std::vector<double>& numbers) {
  std::vector<Operation> operations;
  for (size_t i = 0; i + 5 < numbers.size(); i += 6)
    operations.push_back({static_cast<Operation::Kind>(static_cast<int>(numbers[i])),
                          static_cast<int>(numbers[i + 1]), static_cast<int>(numbers[i + 2]),
                          static_cast<int64_t>(numbers[i + 3]),
                          static_cast<int64_t>(numbers[i + 4]),
                          static_cast<int64_t>(numbers[i + 5])});
  return operations;
}

}  // namespace lab05
