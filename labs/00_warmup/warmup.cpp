// Lab 00 · warm-up: views, ranks, messages. You write this file; warmup.h is its contract.
#include "labs/00_warmup/warmup.h"

#include <fmt/format.h>

#include "common/todo.h"

namespace lab00 {

lab::Tensor second_half(const lab::Tensor& batch) {
  // TODO(1): a view of the second half of the rows. 1 line.
  lab::not_implemented("1", "labs/00_warmup/warmup.cpp");
}

void set_column(const lab::Tensor& batch, int64_t column, float value) {
  // TODO(1): a column is a view as well. 1 line.
  lab::not_implemented("1", "labs/00_warmup/warmup.cpp");
}

std::string who_am_i(const lab::ProcessGroup& world) {
  // TODO(2): "rank 1 of 3". 1 line.
  lab::not_implemented("2", "labs/00_warmup/warmup.cpp");
}

void hand_over(lab::ProcessGroup& world, const lab::Tensor& tensor) {
  // TODO(3): all ranks run this function. Which one sends, which one receives, and what do the
  // others do? 2 lines.
  lab::not_implemented("3", "labs/00_warmup/warmup.cpp");
}

float mean_over_ranks(lab::ProcessGroup& world, float value) {
  // TODO(4): 3 lines.
  //  1. Messages are tensors: put the value into one.
  //  2. Sum over all ranks. Where is the result?
  //  3. The mean.
  lab::not_implemented("4", "labs/00_warmup/warmup.cpp");
}

void pass_right(lab::ProcessGroup& world, const lab::Tensor& outgoing,
                const lab::Tensor& incoming) {
  // TODO(5): first read both_send_first in main.cpp, and run it. Then about 7 lines.
  //  1. Which rank is to the right, which to the left? Mind both ends of the ring.
  //  2. Send and receive, in an order that leaves no circle of waiting ranks.
  lab::not_implemented("5", "labs/00_warmup/warmup.cpp");
}

}  // namespace lab00
