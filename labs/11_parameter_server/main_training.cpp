// Lab 11 · the training around the student's functions. Given.
#include "labs/11_parameter_server/main_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/run/training/validation.h"

namespace lab11 {

using namespace lab;

namespace {

LlamaConfig with_vocabulary(LlamaConfig config, const Tokenizer& tokenizer) {
  config.vocab_size = tokenizer.vocab_size();
  return config;
}

}  // namespace

Input::Input(const RunPlan& plan)
    : tokenizer(plan.tokenizer),
      data(plan.data, tokenizer, plan.cache),
      model(with_vocabulary(plan.model, tokenizer)),
      functions(training_functions(Device::kCpu)) {}

int64_t Input::sequences(const RunPlan& plan) const {
  return data.sequence_count(Split::kTrain, plan.model.context);
}

Replica::Replica(const RunPlan& plan, const Input& input)
    : plan_(plan),
      input_(input),
      model_(input.model, StageSpan::whole(input.model), Device::kCpu,
             static_cast<uint64_t>(plan.seed)),
      reader_(input.sequences(plan), static_cast<uint64_t>(plan.seed)) {}

TokenBatch Replica::batch(int64_t item) {
  const int64_t first = item * plan_.batch;
  const int64_t sequences = input_.sequences(plan_);
  reader_.restore({.epoch = first / sequences, .position = first % sequences});
  return input_.data.batch(Split::kTrain, reader_.next(plan_.batch), plan_.model.context);
}

Gradient Replica::compute(const Ticket& ticket, const Tensor& weights) {
  const TokenBatch data = batch(ticket.item);
  const int64_t targets = data.target_count();
  model_.parameters().copy_from(weights);
  model_.zero_gradients();
  const Tensor logits = model_.forward(data);
  const double loss = input_.functions.loss(logits, data, targets);
  model_.backward(logits);
  return {.mean = model_.gradients().clone(), .samples = targets, .loss = loss};
}

Learner::Learner(const RunPlan& plan, const Input& input, int64_t staleness)
    : model_(input.model, StageSpan::whole(input.model), Device::kCpu,
             static_cast<uint64_t>(plan.seed)),
      optimizer_(make_optimizer(plan, model_, input.functions.adam)) {
  server_.gradients_per_update = static_cast<int>(plan.accumulate);
  server_.staleness = staleness;
  server_.items = plan.steps * plan.accumulate;
  server_.sum = Tensor::zeros(model_.gradients().shape());
  server_.update = [this, rates = plan.learning_rates(), clip = plan.clip](const Tensor& mean) {
    model_.gradients().copy_from(mean);
    if (clip > 0) clip_gradients(model_, clip);
    optimizer_->step(model_.parameters(), model_.gradients(), rates.at(server_.version + 1));
    snapshot_ = {};
    ++updates_;
  };
}

void Learner::begin_at(int64_t version, Ledger& ledger) {
  ledger_ = &ledger;
  updates_ = version;
  server_.version = version;
  server_.next_ticket = ledger.next_ticket();
  // Items that have counted may have overtaken others, whose leases have ended with the process.
  for (const int64_t item : ledger.counted_items()) {
    while (server_.next_item < item) server_.returned.insert(server_.next_item++);
    server_.next_item = item + 1;
  }
}

ServerHooks Learner::hooks() {
  return {.pull = [this](int worker) { return pull(worker); },
          .push = [this](const Push& p) { push(p); },
          .leave = [this](int worker) { leave(worker); },
          .finished = [this] { return is_done(); },
          .weights =
              [this] {
                if (!snapshot_.defined()) snapshot_ = model_.parameters().clone();
                return snapshot_;
              }};
}

std::optional<Ticket> Learner::pull(int worker) {
  const std::optional<Ticket> ticket = on_pull(server_, worker);
  if (ledger_ != nullptr) ledger_->pulled(worker, ticket, updates_);
  return ticket;
}

void Learner::leave(int worker) {
  on_leave(server_, worker);
  if (ledger_ != nullptr) ledger_->left(worker);
}

void Learner::push(const Push& push) {
  const auto lease = server_.leases.find(push.ticket);
  const int64_t version = server_.version;
  const int64_t staleness =
      lease == server_.leases.end() ? 0 : server_.version - lease->second.version;
  const int64_t update = updates_ + 1;
  const bool counts = on_push(server_, push);
  if (ledger_ != nullptr) ledger_->pushed(push, counts ? std::optional(update) : std::nullopt);
  if (!counts) return;
  update_.loss += push.gradient.loss * static_cast<double>(push.gradient.samples);
  update_.samples += push.gradient.samples;
  update_.stalest = std::max(update_.stalest, staleness);
  if (server_.version == version) return;
  Update done = std::exchange(update_, {});
  stalest_ = std::max(stalest_, done.stalest);
  done.version = server_.version;
  if (done.samples > 0) done.loss /= static_cast<double>(done.samples);
  if (listener_ && !listener_(done)) stopped_ = true;
}

int train(const RunPlan& plan, const Input& input, int64_t staleness,
          const std::function<std::string(Learner&, const Ledger&, TrainingRun&)>& drive) {
  Learner learner(plan, input, staleness);
  // Where the data of the present version end: what a checkpoint saves.
  Sampler sampler(input.sequences(plan), static_cast<uint64_t>(plan.seed));
  const auto validate = [&] {
    return validation_loss(learner.model(), input.data, plan, input.functions.loss);
  };
  TrainingRun run(
      plan, {learner.model(), learner.optimizer(), sampler, input.tokenizer, input.data, validate});
  const int64_t first_step = run.begin();
  Ledger ledger(run.folder() / "gradients.jsonl", first_step - 1, plan.accumulate);
  learner.begin_at(first_step - 1, ledger);
  std::string summary;
  if (run.goes_on(first_step)) {
    run.next_microbatches();  // `sampler` goes along, and the clock of tokens/s starts
    learner.when_updated([&](const Learner::Update& update) {
      run.record(update.version, update.loss);
      if (run.checkpoint_due(update.version)) run.save_checkpoint();
      const bool goes_on = run.goes_on(update.version + 1);
      if (goes_on) run.next_microbatches();
      return goes_on;
    });
    summary = drive(learner, ledger, run);
  }
  run.finish();
  fmt::print("{}", summary);
  run.tell_story();
  return run.exit_code();
}

}  // namespace lab11
