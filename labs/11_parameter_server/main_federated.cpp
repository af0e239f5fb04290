// Lab 11 · federated rounds: clients that differ, of which some take part. Given.
#include "labs/11_parameter_server/main_federated.h"

#include <fmt/format.h>

#include <memory>
#include <random>
#include <vector>

#include "common/data/sorted_shard.h"
#include "common/error.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/11_parameter_server/main_training.h"

namespace lab11 {

using namespace lab;

namespace {

/// A client keeps its place in its data, and the state of its own optimizer, between its rounds.
struct Client {
  Sampler sampler;
  std::unique_ptr<Optimizer> optimizer;
};

std::vector<Client> make_clients(const RunPlan& plan, const Federated& federated,
                                 const Input& input, const LlamaStage& model) {
  std::vector<double> keys;
  if (federated.shards != "alike") keys = mean_tokens(input.data, plan.model.context);
  std::vector<Client> clients;
  for (int c = 0; c < federated.clients; ++c) {
    const Shard shard = federated.shards == "alike"
                            ? Shard([c, n = federated.clients](std::span<const int64_t> order) {
                                return lab02::shard(order, c, n);
                              })
                            : sorted_shard(keys, c, federated.clients);
    clients.push_back(
        {.sampler = Sampler(input.sequences(plan), static_cast<uint64_t>(plan.seed), shard),
         .optimizer = make_optimizer(plan, model, input.functions.adam)});
  }
  return clients;
}

}  // namespace

void add_federated_options(CommandLine& line, Federated& federated) {
  line.group("Federated rounds");
  line.add_flag("--federated", federated.wanted,
                "clients that average their weights; --steps are rounds")
      .kept();
  line.add("--clients", federated.clients, "C", "number of clients")
      .within(1, 1000)
      .shows_default()
      .kept();
  line.add("--per-round", federated.per_round, "M", "how many clients take part in each round")
      .within(1, 1000)
      .shows_default()
      .kept();
  line.add("--local-steps", federated.local_steps, "K", "steps of a client in a round")
      .within(1, 1'000'000)
      .shows_default()
      .kept();
  line.add("--outer-lr", federated.outer_lr, "A", "learning rate of the server's step, eta")
      .shows_default()
      .kept();
  line.add("--outer-momentum", federated.outer_momentum, "U", "momentum of the server's step, mu")
      .shows_default()
      .kept();
  line.add("--drop", federated.drop, "P", "the probability that a client does not answer")
      .shows_default()
      .kept();
  line.add("--shards", federated.shards, "",
           "how sequences are dealt: alike; or by-vocabulary, sorted, so that clients differ")
      .one_of({"alike", "by-vocabulary"})
      .shows_default()
      .kept();
}

void settle(const Federated& federated, RunPlan& plan) {
  if (federated.drop < 0 || federated.drop >= 1)
    throw UsageError("--drop must be at least 0 and less than 1");
  if (federated.outer_momentum < 0 || federated.outer_momentum >= 1)
    throw UsageError("--outer-momentum must be at least 0 and less than 1");
  if (plan.resume)
    throw UsageError("--resume: the clients' own states are not saved; begin anew without it");
  // What a round reads, for the tokens per second; a client's step has one microbatch.
  plan.accumulate = federated.local_steps * std::min(federated.per_round, federated.clients);
}

int train_federated(const RunPlan& plan, const Federated& federated) {
  set_thread_count(plan.threads);
  const Input input(plan);
  LlamaStage model(input.model, StageSpan::whole(input.model), Device::kCpu,
                   static_cast<uint64_t>(plan.seed));
  const Tensor weights = model.parameters().clone();  // the server's; `model` is the clients'
  std::vector<Client> clients = make_clients(plan, federated, input, model);
  Outer outer{.lr = static_cast<float>(federated.outer_lr),
              .momentum = static_cast<float>(federated.outer_momentum),
              .velocity = Tensor::zeros(weights.shape())};
  const auto unused = make_optimizer(plan, model, input.functions.adam);
  Sampler sampler(input.sequences(plan), static_cast<uint64_t>(plan.seed));
  const auto validate = [&] {
    return validation_loss(model, input.data, plan, input.functions.loss);
  };
  TrainingRun run(plan, {.model = model,
                         .optimizer = *unused,
                         .sampler = sampler,
                         .tokenizer = input.tokenizer,
                         .data = input.data,
                         .validate = validate,
                         .resumable = false});
  const LearningRate learning_rate = plan.learning_rates();
  std::mt19937_64 dropping(static_cast<uint64_t>(plan.seed));
  int64_t rounds = 0;
  int64_t answers = 0;
  for (int64_t round = run.begin(); run.goes_on(round); ++round) {
    run.next_microbatches();
    std::vector<ClientResult> results;
    double loss = 0;
    int64_t targets = 0;
    for (const int c : sample_clients(federated.clients, federated.per_round,
                                      static_cast<uint64_t>(plan.seed), round)) {
      if (std::uniform_real_distribution<double>(0, 1)(dropping) < federated.drop) continue;
      Client& client = clients.at(static_cast<size_t>(c));
      model.parameters().copy_from(weights);
      ClientResult result;
      for (int64_t k = 0; k < federated.local_steps; ++k) {
        const TokenBatch batch =
            input.data.batch(Split::kTrain, client.sampler.next(plan.batch), plan.model.context);
        const double step_loss =
            lab01::train_step(model, *client.optimizer, {&batch, 1}, input.functions.loss,
                              learning_rate.at(round), plan.clip);
        loss += step_loss * static_cast<double>(batch.target_count());
        result.samples += batch.target_count();
      }
      targets += result.samples;
      result.weights = model.parameters().clone();
      results.push_back(std::move(result));
    }
    ++rounds;
    answers += static_cast<int64_t>(results.size());
    outer_step(weights, results, outer);
    model.parameters().copy_from(weights);
    run.record(round, targets > 0 ? loss / static_cast<double>(targets) : 0.0);
    if (run.checkpoint_due(round)) run.save_checkpoint();
  }
  run.finish();
  fmt::print("clients     {} answers in {} rounds; {:.1f} MB to and from each\n", answers, rounds,
             static_cast<double>(weights.bytes()) / 1e6);
  run.tell_story();
  return run.exit_code();
}

}  // namespace lab11
