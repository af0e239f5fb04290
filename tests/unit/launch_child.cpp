// A program of ranks for the tests of launcher and job: trains nothing, and goes wrong in every
// way.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/interrupt.h"
#include "common/run/training/start_up.h"

namespace lab {
namespace {

constexpr int64_t kBigElements = 25 << 20;  // 100 MiB

struct ChildOptions {
  LaunchOptions launch;
  std::string scenario;
  std::string lock;  // a file that every rank holds a lock on while it lives
  int who = 0;       // the rank that goes wrong
};

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

/// Forever, or until what `next` returns is false.
void reduce_again_and_again(
    ProcessGroup& world, int64_t elements,
    const std::function<bool()>& next = [] { return true; }) {
  const Tensor tensor = Tensor::zeros({elements});
  world.all_reduce(tensor);
  say("ready");
  while (next()) world.all_reduce(tensor);
}

/// Reads what another thread may be writing: no race for ThreadSanitizer to report.
__attribute__((no_sanitize("thread"))) bool exceeds(const volatile float& value, float least) {
  return value > least;
}

/// Kills a process as soon as a part of the tensor, which was all zeros, exceeds `least`: in the
/// middle of the transfer that changes it.
std::jthread kill_when_it_exceeds(float least, const Tensor& tensor, pid_t pid) {
  return std::jthread([least, tensor, pid](const std::stop_token& stop) {
    constexpr size_t kStride = kBigElements / 1024;
    while (!stop.stop_requested())
      for (size_t i = 0; i < kBigElements; i += kStride)
        if (exceeds(tensor.values()[i], least)) kill(pid, SIGKILL);
  });
}

Tensor big_tensor(float value) {
  Tensor tensor = Tensor::zeros({kBigElements});
  std::ranges::fill(tensor.values(), value);
  return tensor;
}

/// Nothing is wrong here: a peer that computes for long before it receives, then 100 MiB twice by
/// message and twice by all_reduce.
int move_much(Job& job, bool me) {
  ProcessGroup& world = job.world();
  const Tensor tensor = big_tensor(1.0F);
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  if (me) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  const Tensor arrived = Tensor::empty(tensor.shape());
  for (int i = 0; i < 2; ++i) {
    Work work = world.irecv(arrived, before);
    world.send(tensor, next);
    work.wait();
  }
  for (int i = 0; i < 2; ++i) world.all_reduce(tensor);
  say("done");
  return 0;
}

int ok(Job& job, bool /*me*/) {
  const Tensor tensor = Tensor::from({static_cast<float>(job.world().rank() + 1)}, {1});
  job.agree("corpus", "stories.txt");
  job.world().all_reduce(tensor);
  say(fmt::format("rank {} of {}: sum {}", job.world().rank(), job.world().size(),
                  tensor.data()[0]));
  return 0;
}

int loop(Job& job, bool /*me*/) {
  reduce_again_and_again(job.world(), 1 << 10);
  return 0;
}

int chatter(Job& job, bool /*me*/) {
  while (true) {
    job.world().barrier();
    say("again");
  }
}

int interrupted(Job& job, bool /*me*/) {
  const Interrupt interrupt;
  reduce_again_and_again(job.world(), 1,
                         [&] { return all_true(job.world(), interrupt.signal() == 0); });
  say("saved");
  return 130;
}

/// The step in which the signal comes takes long.
int interrupted_in_a_long_step(Job& job, bool /*me*/) {
  const Interrupt interrupt;
  reduce_again_and_again(job.world(), 1,
                         [&] { return all_true(job.world(), interrupt.signal() == 0); });
  std::this_thread::sleep_for(std::chrono::seconds(8));
  say("saved");
  return 128 + interrupt.signal();
}

int fail_to_save(Job& job, bool me) {
  const Interrupt interrupt;
  reduce_again_and_again(job.world(), 1,
                         [&] { return all_true(job.world(), interrupt.signal() == 0); });
  // Another rank may have had the signal first: without a handler, the own one would kill.
  while (interrupt.signal() == 0) std::this_thread::yield();
  require(!me, "the disk is full");
  while (true) pause();
}

int deaf(Job& job, bool /*me*/) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  job.world().barrier();
  say("ready");
  while (true) pause();
}

int deadlock(Job& job, bool /*me*/) {
  const int other = (job.world().rank() + 1) % job.world().size();
  job.world().send(Tensor::zeros({256}), other);
  return 0;
}

/// One of three ranks sees the sum of the others' numbers: then both have begun. On a busy machine
/// that is noticed late: then it happens in one of the next all_reduces.
int kill_in_all_reduce(Job& job, bool me) {
  const Tensor tensor = big_tensor(me ? 0.0F : 1.0F);
  std::jthread killer;
  if (me) killer = kill_when_it_exceeds(1.5F, tensor, getpid());
  while (true) job.world().all_reduce(tensor);
}

/// Rank 1 sends; rank 0 sees the first of it come. On a busy machine that is noticed late: then it
/// happens in one of the next messages.
int kill_in_send(Job& job, bool me) {
  if (me) {
    job.store().set("pid", std::to_string(getpid()));
    while (true) job.world().send(big_tensor(1.0F), 0);
  } else if (job.world().rank() == 0) {
    const pid_t sender = std::stoi(job.store().get("pid", job.environment().timeout));
    const Tensor tensor = big_tensor(0.0F);
    const std::jthread killer = kill_when_it_exceeds(0.5F, tensor, sender);
    while (true) job.world().recv(tensor, 1);
  }
  job.world().barrier();
  return 0;
}

int stop(Job& job, bool me) {
  job.world().barrier();
  if (me) raise(SIGSTOP);
  job.world().barrier();
  return 0;
}

int end_by_signal(Job& job, bool me) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would make an exit code of it
  if (me) raise(SIGSEGV);
  job.world().barrier();
  return 0;
}

int exit_without_a_word(Job& job, bool me) {
  if (me) _exit(0);
  job.world().barrier();
  return 0;
}

int return_early(Job& job, bool me) {
  if (me) return 0;
  job.world().barrier();
  return 0;
}

int exit_with_three(Job& job, bool me) {
  if (me) return 3;
  job.world().barrier();
  return 0;
}

int throw_error(Job& job, bool me) {
  require(!me, "the disk is full");
  job.world().barrier();
  return 0;
}

/// The others never enter the collective that is under way.
int throw_with_a_posted_collective(Job& job, bool me) {
  if (me) {
    const Tensor tensor = Tensor::zeros({256});
    const Work under_way = job.world().all_reduce_async(tensor);
    fail("the disk is full");
  }
  job.world().recv(Tensor::zeros({256}), 1);
  return 0;
}

int disagree(Job& job, bool me) {
  job.agree("model", "6 layers");
  job.agree("corpus", me ? "my own stories" : "stories.txt");
  return 0;
}

int say_threads(Job& job, bool /*me*/) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  say(fmt::format("threads {}", threads == nullptr ? "?" : threads));
  job.world().barrier();
  return 0;
}

/// Work of three seconds on the first rank of each host, with a patience of one; all say in between
/// that it goes on, rank 0 only if it is `me`.
int work_for_long(Job& job, bool me) {
  using namespace std::chrono_literals;
  bool worked = false;
  const auto work = [&](const std::function<void()>& going_on) {
    worked = true;
    for (int i = 0; i < 60; ++i) {
      std::this_thread::sleep_for(50ms);
      if (me || job.world().rank() != 0) going_on();
    }
  };
  work_on_first_ranks(job, "the work of rank 0", /*threads=*/0, work, /*patience=*/1000ms);
  say(worked ? "worked" : "waited");
  return 0;
}

const std::map<std::string, int (*)(Job&, bool)> kScenarios{
    {"ok", ok},
    {"loop", loop},
    {"move_much", move_much},
    {"chatter", chatter},
    {"interrupted", interrupted},
    {"interrupted_in_a_long_step", interrupted_in_a_long_step},
    {"fail_to_save", fail_to_save},
    {"deaf", deaf},
    {"deadlock", deadlock},
    {"kill_in_all_reduce", kill_in_all_reduce},
    {"kill_in_send", kill_in_send},
    {"stop", stop},
    {"end_by_signal", end_by_signal},
    {"exit_without_a_word", exit_without_a_word},
    {"return_early", return_early},
    {"exit_with_three", exit_with_three},
    {"throw_error", throw_error},
    {"throw_with_a_posted_collective", throw_with_a_posted_collective},
    {"disagree", disagree},
    {"say_threads", say_threads},
    {"work_for_long", work_for_long},
};

void hold_lock(const std::string& file) {
  if (file.empty()) return;
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  require(descriptor >= 0 && flock(descriptor, LOCK_SH) == 0, "cannot lock {}", file);
}

int child_main(int argc, char** argv) {
  ChildOptions options;
  CommandLine app("What a rank may do to others.");
  app.add("scenario", options.scenario, "", "What to do").required();
  app.add("--lock", options.lock, "", "File to hold a lock on");
  app.add("--who", options.who, "", "The rank that goes wrong; -1: all of them");
  add_launch_options(app, options.launch);
  app.read(argc, argv);

  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);
  const RankEnvironment environment = read_rank_environment(options.launch);
  hold_lock(options.lock);
  const bool me = options.who < 0 || environment.rank == options.who;
  if (me && options.scenario == "kill_before_rendezvous") raise(SIGKILL);
  if (me && options.scenario == "exit_before_rendezvous") return 0;
  Job job(environment);
  const auto found = kScenarios.find(options.scenario);
  return found == kScenarios.end() ? ok(job, me) : found->second(job, me);
}

}  // namespace
}  // namespace lab

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::child_main); }
