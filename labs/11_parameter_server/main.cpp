// Lab 11 · trains a LLaMA through a parameter server. This program is given; what it calls from
// parameter_server.h is yours.
//
// Without further options one process computes all gradients, and simulates which worker computes
// what, and when. With --server, workers are processes.
#include "common/error.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/settle_plan.h"
#include "labs/11_parameter_server/main_federated.h"
#include "labs/11_parameter_server/main_server.h"
#include "labs/11_parameter_server/main_simulation.h"
#include "labs/11_parameter_server/main_workers.h"

namespace {

using namespace lab;

int start(int argc, char** argv) {
  lab11::Workers workers;
  lab11::Federated federated;
  bool traffic = false;
  bool compares = false;
  const auto add_options = [&](CommandLine& line) {
    lab11::add_worker_options(line, workers);
    line.add_flag("--compare", compares,
                  "synchronous, bounded and asynchronous, with equal data: a table and figures")
        .not_in_file();
    line.add_flag("--traffic", traffic,
                  "no training: a step's messages through servers and around a ring")
        .not_in_file();
    lab11::add_federated_options(line, federated);
  };
  const auto settle = [&](RunPlan& plan) {
    if (federated.wanted)
      lab11::settle(federated, plan);
    else
      lab11::settle(workers, plan);
  };
  const RunPlan plan = settle_plan(argc, argv,
                                   {.about = "Trains a LLaMA through a parameter server.",
                                    .run_name = "server",
                                    .batch = 1,
                                    .add_options = add_options,
                                    .settle = settle});
  if (plan.device != "cpu")
    throw UsageError("--device: this lab's gradients travel from host memory");
  workers.seed = plan.seed;
  if (traffic) return lab11::show_traffic(workers);
  if (compares) return lab11::compare(plan, workers);
  if (!workers.work_for.empty()) return lab11::work(plan, workers);
  if (workers.server) return lab11::serve(plan, workers);
  if (federated.wanted) return lab11::train_federated(plan, federated);
  return lab11::train_simulated(plan, workers);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
