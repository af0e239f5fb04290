// What a stage did in a wave, by its flight record, against what its actions say.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/pipeline/schedule.h"
#include "tests/grading/operations.h"

namespace lab05 {

struct Message {
  bool recv = false;
  int peer = 0;  // a stage
  int tag = 0;
  uint64_t bytes = 0;

  auto operator<=>(const Message&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Those that a stage's actions ask for, in their order.
std::vector<Message> messages_in(const lab::ActionList& actions, int stage,
                                 std::span<const lab::TokenBatch> microbatches, int64_t dim);
/// Those that it sent and received. `first_rank`: the world rank of stage 0.
std::vector<Message> messages_of(const std::vector<lab::grading::Operation>& operations,
                                 int first_rank);
/// What is wrong with them, in any order; empty if nothing is.
std::string wrong_messages(int rank, int first_rank, std::vector<Message> got,
                           std::vector<Message> right);

/// One stage in one wave.
struct Course {
  int stage = 0;
  int first_rank = 0;
  lab::ActionList actions;
  std::vector<Message> messages;  // those of the actions
  std::vector<lab::grading::Operation> operations;
  bool returned = true;

  int rank() const { return first_rank + stage; }
};

/// That exactly the messages of the actions were sent and received, and that every action was done
/// in its place; posted recvs may begin before it, others after it. Empty if nothing is wrong.
std::string wrong_course(const Course& course);

/// That no pass and no send begins before an earlier send that is not posted is done.
std::string wrong_waits(const Course& course);

/// About stages that wait for each other forever: in the first line the one that does not do what
/// its actions say, if one is found; then `diagnosis`, and where each of them stands.
std::string why_they_stand_still(const std::vector<Course>& courses, const std::string& diagnosis);

}  // namespace lab05
