// Lab 00 · runs the exercises on every rank and says what is right. This program is given; you
// write the functions of warmup.h that it calls.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/todo.h"
#include "labs/00_warmup/warmup.h"

namespace {

using namespace lab;

std::string numbers(const Tensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.values(), " "));
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::ranges::equal(a.values(), b.values());
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// Every exercise returns what is wrong on this rank, or "" if nothing is.

std::string views(ProcessGroup& world) {
  const Tensor batch = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {4, 3});
  const Tensor half = lab00::second_half(batch);
  if (!half.defined() || half.shape() != Shape{2, 3})
    return fmt::format("second_half of a batch [4, 3] should be [2, 3], it is {}",
                       to_string(half.shape()));
  if (!equal(half, batch.rows(2, 4)))
    return fmt::format("second_half should be 6 7 8 9 10 11, it is {}", numbers(half));
  if (half.data() != batch.rows(2, 4).data())
    return "second_half has the right numbers, but is a copy: writing to it does not change the "
           "batch";
  const Tensor short_batch = Tensor::from({0, 1, 2, 3}, {2, 2});
  if (const Tensor row = lab00::second_half(short_batch); !equal(row, short_batch.rows(1, 2)))
    return fmt::format("second_half of a batch [2, 2] should be 2 3, it is {}", numbers(row));

  const auto rank = static_cast<float>(world.rank());
  lab00::set_column(batch, 1, rank);
  const Tensor expected = Tensor::from({0, rank, 2, 3, rank, 5, 6, rank, 8, 9, rank, 11}, {4, 3});
  if (!equal(batch, expected))
    return fmt::format("after set_column the batch should be {}, it is {}", numbers(expected),
                       numbers(batch));
  say(fmt::format("  set_column on the batch, and its second half shows it: {}", numbers(half)));
  return "";
}

std::string identity(ProcessGroup& world) {
  const std::string said = lab00::who_am_i(world);
  const std::string expected = fmt::format("rank {} of {}", world.rank(), world.size());
  if (said != expected) return fmt::format("should be \"{}\", is \"{}\"", expected, said);
  say(fmt::format("  I am {}", said));
  return "";
}

Tensor own_numbers(const ProcessGroup& world, int rank) {
  const auto first = static_cast<float>(10 * ((rank + world.size()) % world.size()));
  return Tensor::from({first + 1, first + 2, first + 3}, {3});
}

size_t pending(const ProcessGroup& world) { return world.recorder().snapshot().pending.size(); }

constexpr const char* kNotWaitedFor =
    "a message was posted and never waited for: call wait() on what isend or irecv returned";

std::string message(ProcessGroup& world) {
  const Tensor tensor = own_numbers(world, world.rank());
  const size_t pending_before = pending(world);
  lab00::hand_over(world, tensor);
  if (pending(world) > pending_before) return kNotWaitedFor;
  const Tensor expected = own_numbers(world, world.rank() == 1 ? 0 : world.rank());
  if (!equal(tensor, expected))
    return fmt::format("should have {}, has {}", numbers(expected), numbers(tensor));
  if (world.rank() == 1) say(fmt::format("  received {}", numbers(tensor)));
  return "";
}

std::string mean(ProcessGroup& world) {
  const auto value = static_cast<float>(world.rank() + 1);
  const float result = lab00::mean_over_ranks(world, value);
  const auto size = static_cast<float>(world.size());
  const float expected = (size + 1) / 2;
  constexpr float kRounding = 1e-6F;  // whether each number is divided, or their sum
  if (result == expected * size)
    return fmt::format("{} is the sum; the mean of 1 to {} is {}", result, size, expected);
  if (std::abs(result - expected) > kRounding * expected)
    return fmt::format("the mean of 1 to {} should be {}, it is {}", size, expected, result);
  say(fmt::format("  my value {}, the mean {}", value, result));
  return "";
}

std::string ring(ProcessGroup& world) {
  const Tensor outgoing = own_numbers(world, world.rank());
  const Tensor incoming = Tensor::zeros({3});
  const size_t pending_before = pending(world);
  lab00::pass_right(world, outgoing, incoming);
  if (pending(world) > pending_before) return kNotWaitedFor;
  const Tensor expected = own_numbers(world, world.rank() - 1);
  if (!equal(outgoing, own_numbers(world, world.rank())))
    return "outgoing has changed: receive into incoming";
  if (!equal(incoming, expected) && equal(incoming, own_numbers(world, world.rank() + 1)))
    return "these are the right neighbour's numbers: sent in the wrong direction";
  if (!equal(incoming, expected))
    return fmt::format("should have received {}, has {}", numbers(expected), numbers(incoming));
  say(fmt::format("  sent {}, received {}", numbers(outgoing), numbers(incoming)));
  return "";
}

// The deliberate deadlock: every rank waits in its send for a recv that its right neighbour would
// only post next.
void both_send_first(ProcessGroup& world, const Tensor& outgoing, const Tensor& incoming) {
  world.send(outgoing, (world.rank() + 1) % world.size());
  world.recv(incoming, (world.rank() + world.size() - 1) % world.size());
}

std::string deadlock(ProcessGroup& world) {
  say("  I send first, then I receive");
  both_send_first(world, own_numbers(world, world.rank()), Tensor::zeros({3}));
  return "this should never have finished";
}

struct Exercise {
  std::string_view name;
  std::string_view title;
  std::string (*check)(ProcessGroup& world);
};

constexpr std::array kExercises{
    Exercise{"views", "1 views: two tensors, one memory", views},
    Exercise{"identity", "2 identity: one program, many ranks", identity},
    Exercise{"message", "3 message: rank 0 hands over to rank 1", message},
    Exercise{"mean", "4 mean: one all_reduce", mean},
    Exercise{"ring", "5 ring: each rank sends to the right", ring},
    Exercise{"deadlock", "deadlock: the same ring, everybody sends first", deadlock},
};

/// Runs an exercise on all ranks. A rank that is wrong says so; rank 0 says whether all are right.
bool run(const Exercise& exercise, ProcessGroup& world) {
  if (world.rank() == 0) say(std::string(exercise.title));
  world.barrier();
  std::string off;
  bool everywhere_the_same = false;
  try {
    off = exercise.check(world);
  } catch (const NotImplemented& todo) {
    off = todo.what();
    everywhere_the_same = true;
  }
  if (!off.empty() && (world.rank() == 0 || !everywhere_the_same)) say("  " + off);

  const Tensor wrong = Tensor::from({off.empty() ? 0.0F : 1.0F}, {1});
  world.all_reduce(wrong);
  const bool right = wrong.values()[0] == 0;
  if (right && world.rank() == 0) say("  right");
  return right;
}

std::vector<std::string> exercise_names() {
  std::vector<std::string> names;
  for (const Exercise& exercise : kExercises) names.emplace_back(exercise.name);
  return names;
}

int warm_up(int argc, char** argv) {
  LaunchOptions launch;
  std::string only;
  CommandLine app("Views, ranks and messages: the exercises of lab 00, checked on every rank.");
  add_launch_options(app, launch);
  app.add("--exercise", only, "", "Run only this one").one_of(exercise_names());
  app.read(argc, argv);

  const bool starts_ranks = is_launcher(launch);
  const RankEnvironment environment =
      starts_ranks ? RankEnvironment{} : read_rank_environment(launch);
  if ((starts_ranks ? launch.ranks : environment.world_size) < 2)
    throw UsageError("this lab needs at least 2 ranks: ./workbook run 0 --ranks 2");
  if (starts_ranks) return launch_ranks(launch, argc, argv);

  Job job(environment);
  int right = 0;
  int count = 0;
  for (const Exercise& exercise : kExercises) {
    if (only.empty() ? exercise.name == "deadlock" : exercise.name != only) continue;
    ++count;
    right += run(exercise, job.world()) ? 1 : 0;
  }
  if (environment.rank == 0) say(fmt::format("{} of {} right", right, count));
  return right == count ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, warm_up); }
