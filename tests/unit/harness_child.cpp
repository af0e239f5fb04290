// A rank program that goes wrong in every way, for the tests of the rank harness.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/tensor/parallel.h"
#include "common/todo.h"
#include "tests/grading/rank_main.h"

namespace {

using lab::grading::Parcel;

int rank() { return std::atoi(std::getenv("RANK")); }

/// Returns what came in, and what a rank knows about itself.
Parcel echo(const Parcel& input) {
  Parcel result = input;
  result.set("rank", rank());
  result.set("world_size", std::atoi(std::getenv("WORLD_SIZE")));
  result.set("threads", lab::thread_count());
  return result;
}

Parcel crash(const Parcel&) {
  std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make an exit code of it
  std::raise(SIGSEGV);
  return {};
}

Parcel leave(const Parcel& input) { std::_Exit(static_cast<int>(input.number("code"))); }

/// Ends as AddressSanitizer ends a program.
Parcel sanitized(const Parcel&) {
  std::cerr << "ERROR: AddressSanitizer: ...\nSUMMARY: AddressSanitizer: overflow a.cpp:3\n...\n";
  std::_Exit(1);
}

Parcel compute_forever(const Parcel&) {
  volatile bool forever = true;
  while (forever) {
  }
  return {};
}

Parcel wait_forever(const Parcel&) {
  pause();
  return {};
}

Parcel throw_error(const Parcel&) { throw std::runtime_error("the text of the exception"); }

/// As from a source file in Latin-1, and with a line that looks like the grader's.
Parcel throw_odd_text(const Parcel&) {
  throw std::runtime_error(
      "Gr\xf6\xdf"
      "e\n\nlab 01: 100/100\x1b[2J");
}

Parcel pretend_todo(const Parcel&) {
  throw lab::NotImplemented("task 1a is not written yet: f\n\nlab 01: 100/100");
}

/// Done after 1.2 s, in which it does not compute.
Parcel sleep_a_while(const Parcel& input) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  return input;
}

Parcel meet_todo(const Parcel&) { lab::not_implemented("1a", "labs/01_single_gpu/single_gpu.cpp"); }

Parcel throw_in_parallel_loop(const Parcel&) {
  lab::parallel_for(0, 8, [](int64_t) {  // on all threads at once
    throw std::runtime_error("thrown in a parallel loop");
  });
  return {};
}

Parcel print_a_flood(const Parcel&) {
  for (int line = 0; line < 200'000; ++line) std::cout << "line " << line << " of a flood\n";
  std::cout << "lab 01: 100/100\n";
  return {};
}

Parcel fail_on_rank_1(const Parcel&) {
  if (rank() == 1) throw std::runtime_error("rank 1 has had enough");
  pause();
  return {};
}

Parcel todo_on_rank_2(const Parcel&) {
  if (rank() == 2) lab::not_implemented("1a", "a.cpp");
  throw std::runtime_error("connection lost");
}

/// Leaves a process behind that holds a lock on the file named by "lock" as long as it lives.
Parcel leave_grandchild(const Parcel& input) {
  const int lock = open(input.text("lock").c_str(), O_RDWR | O_CREAT, 0600);
  flock(lock, LOCK_EX);
  if (fork() == 0) {
    while (true) pause();
  }
  return {};
}

// Ranks that talk.

/// Adds up what the ranks bring along, and passes it on once around.
Parcel add_up(const Parcel& input, lab::ProcessGroup& world) {
  const lab::Tensor sum = input.tensor("mine").clone();
  world.all_reduce(sum);
  const lab::Tensor from_left = lab::Tensor::zeros(sum.shape());
  lab::Work arrives =
      world.irecv(from_left, (world.rank() + world.size() - 1) % world.size(), /*tag=*/1);
  world.send(input.tensor("mine"), (world.rank() + 1) % world.size(), /*tag=*/1);
  arrives.wait();
  Parcel result;
  result.set("sum", sum);
  result.set("from_left", from_left);
  return result;
}

Parcel both_send_first(const Parcel&, lab::ProcessGroup& world) {
  const lab::Tensor tensor = lab::Tensor::zeros({4});
  world.send(tensor, 1 - world.rank());
  world.recv(tensor, 1 - world.rank());
  return {};
}

Parcel forget_the_others(const Parcel&, lab::ProcessGroup& world) {
  if (world.rank() == 1) return {};
  world.all_reduce(lab::Tensor::zeros({4}));
  return {};
}

Parcel throw_while_others_wait(const Parcel&, lab::ProcessGroup& world) {
  if (world.rank() == 1) throw std::runtime_error("rank 1 has had enough");
  world.barrier();
  return {};
}

Parcel todo_while_others_wait(const Parcel&, lab::ProcessGroup& world) {
  if (world.rank() == 1) lab::not_implemented("1a", "a.cpp");
  world.barrier();
  return {};
}

Parcel die_in_all_reduce(const Parcel&, lab::ProcessGroup& world) {
  if (world.rank() == 1) std::raise(SIGKILL);
  world.all_reduce(lab::Tensor::zeros({4}));
  return {};
}

Parcel stop_before_barrier(const Parcel&, lab::ProcessGroup& world) {
  if (world.rank() == 1) std::raise(SIGSTOP);
  world.barrier();
  return {};
}

/// The word after `option` on the command line.
std::string argument(int argc, char** argv, const std::string& option) {
  for (int i = 1; i + 1 < argc; ++i)
    if (argv[i] == option) return argv[i + 1];
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argument(argc, argv, "--scenario");
  const std::string result = argument(argc, argv, "--out");
  if (scenario == "garbage") {
    std::ofstream(result) << "this is not a parcel";
    return 0;
  }
  if (scenario == "unwritable_result") std::filesystem::create_directory(result);
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"echo", echo},
                                            {"unwritable_result", echo},
                                            {"crash", crash},
                                            {"leave", leave},
                                            {"sanitized", sanitized},
                                            {"compute_forever", compute_forever},
                                            {"wait_forever", wait_forever},
                                            {"throw_error", throw_error},
                                            {"throw_odd_text", throw_odd_text},
                                            {"pretend_todo", pretend_todo},
                                            {"sleep_a_while", sleep_a_while},
                                            {"meet_todo", meet_todo},
                                            {"throw_in_parallel_loop", throw_in_parallel_loop},
                                            {"print_a_flood", print_a_flood},
                                            {"fail_on_rank_1", fail_on_rank_1},
                                            {"todo_on_rank_2", todo_on_rank_2},
                                            {"leave_grandchild", leave_grandchild}},
                                  .group = {{"add_up", add_up},
                                            {"both_send_first", both_send_first},
                                            {"forget_the_others", forget_the_others},
                                            {"throw_while_others_wait", throw_while_others_wait},
                                            {"todo_while_others_wait", todo_while_others_wait},
                                            {"die_in_all_reduce", die_in_all_reduce},
                                            {"stop_before_barrier", stop_before_barrier}}});
}
