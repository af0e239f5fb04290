// Lab 11 · real processes. Given.
#include "labs/11_parameter_server/main_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "common/comm/server/server_link.h"
#include "common/comm/server/tcp_server.h"
#include "common/error.h"
#include "common/run/launch/child_process.h"
#include "common/tensor/parallel.h"
#include "labs/11_parameter_server/main_tables.h"
#include "labs/11_parameter_server/main_training.h"

namespace lab11 {

using namespace lab;

namespace {

constexpr double kLonelyS = 10;  // how long the server waits when it has no worker

/// What server and worker must agree on, a line each.
std::string work_of(const RunPlan& plan, const Input& input) {
  const LlamaConfig& m = input.model;
  return fmt::format(
      "lab 11\nprotocol 1\ndim {}\nlayers {}\nheads {}\nkv-heads {}\nhidden {}\ncontext {}\n"
      "tied {}\nprecision {}\nvocabulary {}\ncorpus {:016x}\nbatch {}\nseed {}\n",
      m.dim, m.layers, m.heads, m.kv_heads, m.hidden_dim, plan.model.context, m.tied_head,
      plan.precision, m.vocab_size, input.data.fingerprint(), plan.batch, plan.seed);
}

/// A worker's process, from when it is started until it has ended.
struct Life {
  SimulatedWorker worker;
  std::unique_ptr<ChildProcess> process = {};
  bool is_over = false;
};

class Crew {
 public:
  Crew(const RunPlan& plan, const Workers& workers, std::string config, std::string server)
      : plan_(plan), config_(std::move(config)), server_(std::move(server)) {
    for (const SimulatedWorker& worker : workers.schedule()) lives_.push_back({.worker = worker});
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    threads_ = plan.threads > 0 ? plan.threads : std::max(1, cores / workers.count);
  }

  /// Starts and kills workers whose time (in seconds) has come. Shows the output of those that end.
  void attend(double now, ProgressLine& progress) {
    for (Life& life : lives_) {
      if (!life.process && now >= life.worker.begins_at) start(life);
      if (!life.process || life.is_over) continue;
      life.process->read_output();
      if (now >= life.worker.killed_at) {
        life.process->end();
        life.is_over = true;
        progress.note(fmt::format("killed worker {}", life.worker.number));
      } else if (!life.process->running()) {
        life.is_over = true;
        std::istringstream lines(life.process->output());
        for (std::string line; std::getline(lines, line);)
          progress.note(fmt::format("worker {}: {}", life.worker.number, line));
      }
    }
  }
  bool more_will_come() const {
    return std::ranges::any_of(lives_, [](const Life& life) { return !life.process; });
  }

 private:
  void start(Life& life) {
    life.process = std::make_unique<ChildProcess>(
        std::vector<std::string>{"/proc/self/exe", "--config", config_, "--work-for", server_,
                                 "--worker", std::to_string(life.worker.number), "--pace",
                                 fmt::format("{}", life.worker.compute_s), "--threads",
                                 std::to_string(threads_), "--cache", plan_.cache.string()},
        std::map<std::string, std::string>{});
  }

  const RunPlan& plan_;
  std::string config_;
  std::string server_;
  int threads_ = 1;
  std::vector<Life> lives_;
};

}  // namespace

int serve(const RunPlan& plan, const Workers& workers) {
  set_thread_count(plan.threads);
  const Input input(plan);
  int crew_size = 0;  // numbers below are those of workers that this process starts, at some time
  for (const SimulatedWorker& worker : workers.schedule())
    crew_size = std::max(crew_size, worker.number + 1);
  const auto drive = [&](Learner& learner, const Ledger& ledger, TrainingRun& run) {
    TcpServer server({.address = workers.bind,
                      .work = work_of(plan, input),
                      .elements = learner.model().parameters().numel(),
                      .silent_s = workers.patience,
                      .first_free = crew_size},
                     learner.hooks());
    const std::string where = fmt::format("{}:{}", workers.bind, server.port());
    run.progress().note(fmt::format(
        "server      {}; one more worker: the same command with --work-for {}", where, where));
    Crew crew(plan, workers, (run.folder() / "config.ini").string(), where);
    const Stopwatch clock;
    double company_s = 0;  // when there was last a worker
    server.run([&] {
      const double now = clock.seconds();
      crew.attend(now, run.progress());
      for (const std::string& note : server.take_notes()) run.progress().note(note);
      if (!learner.is_done()) run.progress().show_below(live_table(ledger, learner.updates()));
      if (!server.workers().empty() || crew.more_will_come() || learner.is_done()) company_s = now;
      if (now - company_s <= kLonelyS) return true;
      require(learner.updates() > 0, "no worker is left before the first update: start again");
      run.save_checkpoint();
      fail("no worker is left at update {} of {}: continue with --resume --out {}",
           learner.updates(), plan.steps, run.folder().string());
    });
    std::map<int, int64_t> gradients;
    for (const auto& [number, worker] : ledger.workers()) gradients[number] = worker.gradients;
    return describe_workers(gradients, clock.seconds(), "s", learner.stalest());
  };
  return train(plan, input, workers.bound(), drive);
}

int work(const RunPlan& plan, const Workers& workers) {
  const size_t colon = workers.work_for.rfind(':');
  int port = 0;
  if (colon != std::string::npos) port = std::atoi(workers.work_for.c_str() + colon + 1);
  if (port <= 0 || port > 65'535)
    throw UsageError(fmt::format("--work-for {}: expected ADDRESS:PORT", workers.work_for));
  set_thread_count(plan.threads);
  const Input input(plan);
  Replica replica(plan, input);
  ServerLink link({.address = workers.work_for.substr(0, colon),
                   .port = static_cast<uint16_t>(port),
                   .work = work_of(plan, input),
                   .elements = replica.model().parameters().numel(),
                   .worker = workers.own_number});
  int64_t gradients = 0;
  const Compute compute = [&](const Ticket& ticket, const Tensor& weights) {
    const Stopwatch clock;
    Gradient gradient = replica.compute(ticket, weights);
    ++gradients;
    if (workers.pace > 1)  // --slow
      std::this_thread::sleep_for(
          std::chrono::duration<double>((workers.pace - 1) * clock.seconds()));
    return gradient;
  };
  const bool started_by_hand = workers.own_number < 0;
  if (started_by_hand) {
    fmt::print("worker {} computes for the server at {}\n", link.worker(), workers.work_for);
    std::fflush(stdout);
  }
  Worker worker;
  Request request = on_reply(worker, {}, compute);
  while (request.kind != Request::Kind::kStop)
    request = on_reply(worker, link.exchange(request), compute);
  if (started_by_hand)
    fmt::print("worker {} ends after {} gradients: the server needs no more\n", link.worker(),
               gradients);
  return 0;
}

}  // namespace lab11
