// Drawing pipelines, their oracle, and what must travel.
#include "tests/labs/04_pipeline_1f1b/passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "common/format.h"
#include "tests/grading/training_rank.h"

namespace lab04 {

using lab::counted;
using lab::OpKind;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Call;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::TrainingCase;

namespace {

/// Shapes that a buffer may be mistaken for: many with 12 tokens, rows of a single one, and batches
/// in which nothing is predicted, between others; logits shaped as hidden states. With `large`, one
/// batch has hidden states of 1 MiB. Adam moves weights also where the gradient is 0.
TrainingCase odd_shapes(TrainingCase c, bool large, uint64_t seed) {
  struct Shape {
    int64_t rows;
    int64_t length;
    bool predicts = true;
  };
  c.name = "other shapes, Adam, batches that predict nothing";
  c.model.vocab_size = c.model.dim;
  c.optimizer = "adam";
  c.max_norm = 0;
  c.leftover = lab::grading::kLargeLeftover;
  c.steps.clear();
  for (const auto [rows, length, predicts] :
       {Shape{2, 6}, Shape{3, 4}, Shape{1, 1}, Shape{4, 3, false}, Shape{2, 6}, Shape{12, 1},
        Shape{1, c.model.context}, Shape{large ? (1 << 18) / (3 * c.model.dim) + 1 : 5, 3},
        Shape{6, 2}}) {
    std::vector<int64_t> lengths(static_cast<size_t>(rows), predicts ? length : 1);
    if (rows > 2) lengths[1] = 1;
    c.steps.push_back(
        {{lab::grading::draw_tokens(lengths, length, c.model.vocab_size, seed + c.steps.size())}});
  }
  return c;
}

std::vector<TrainingCase> cases_of(size_t stages, uint64_t seed) {
  std::vector<TrainingCase> cases =
      lab::grading::draw_cases({.stages = static_cast<int>(stages), .microbatches = 1}, seed);
  // Such a batch takes longer than all others: once in a task is enough. The first pipeline of
  // parts_of_three_ranks() is the one with two stages that gets this case.
  cases.insert(cases.begin() + 1, odd_shapes(cases.back(), stages == 2, seed));
  return cases;
}

/// One pipeline on all ranks of the world, in order.
Layout in_order(int ranks) {
  Layout layout(1, std::vector<int>(static_cast<size_t>(ranks)));
  std::iota(layout[0].begin(), layout[0].end(), 0);
  return layout;
}

std::vector<Pipeline> pipelines_of(const Layout& layout, size_t call, uint64_t seed) {
  std::vector<Pipeline> pipelines;
  for (size_t i = 0; i < layout.size(); ++i) {
    const std::vector<TrainingCase> cases = cases_of(layout[i].size(), seed + 100 * call + 10 * i);
    // One process begins with gradients of 0, another one with others: a function may treat its
    // first call as if nothing had been there.
    const size_t first = layout.size() > 1 ? 1 : 0;
    pipelines.push_back({cases[(call + i + first) % cases.size()], layout[i]});
  }
  return pipelines;
}

Call call_of(const PipelineScenario& scenario, const std::vector<Pipeline>& pipelines) {
  const std::vector<int>& first = pipelines[0].ranks;
  const bool is_world =
      pipelines.size() == 1 && Layout{first} == in_order(static_cast<int>(first.size()));
  Call call{.scenario = scenario.name, .inputs = {}};
  for (size_t i = 0; i < pipelines.size(); ++i) {
    const Pipeline& pipeline = pipelines[i];
    call.name += fmt::format("{}{}", i > 0 ? "; " : "", pipeline.training.name);
    const std::vector<Parcel> inputs = scenario.inputs(pipeline);
    for (size_t stage = 0; stage < inputs.size(); ++stage) {
      if (!is_world)
        call.name += fmt::format(", {}stage {} on rank {}", stage == 0 ? "with " : "", stage,
                                 pipeline.ranks[stage]);
      const auto rank = static_cast<size_t>(pipeline.ranks[stage]);
      call.inputs.resize(std::max(call.inputs.size(), rank + 1));
      call.inputs[rank] = inputs[stage];
      call.inputs[rank].set("pipeline", is_world ? -1 : static_cast<double>(i));
      call.inputs[rank].set("stage", static_cast<double>(stage));
    }
  }
  return call;
}

std::vector<Parcel> stages_of(const Pipeline& pipeline, const std::vector<Parcel>& ranks) {
  std::vector<Parcel> stages;
  for (const int rank : pipeline.ranks) stages.push_back(ranks[static_cast<size_t>(rank)]);
  return stages;
}

/// A message of a stage with a neighbour.
struct Message {
  OpKind kind;
  size_t peer;  // the other stage
  uint64_t bytes;
};

std::vector<Message> messages(const Pipeline& pipeline, size_t stage, size_t pass, Way way) {
  const bool forward = way == Way::kForward;
  std::vector<Message> all;
  if (stage > 0)
    all.push_back({forward ? OpKind::kRecv : OpKind::kSend, stage - 1, pipeline.bytes(pass)});
  if (stage + 1 < pipeline.stages())
    all.push_back({forward ? OpKind::kSend : OpKind::kRecv, stage + 1, pipeline.bytes(pass)});
  return all;
}

/// Which stage waits for a message of another size than that of the pass; empty if none does.
std::string wrong_size(const Pipeline& pipeline, const std::vector<Parcel>& stages, Way way) {
  for (size_t s = 0; s < stages.size(); ++s) {
    std::vector<Operation> operations = operations_of(stages[s]);
    std::erase_if(operations, [](const Operation& o) { return !is_message(o.kind); });
    const size_t of_a_pass = messages(pipeline, s, 0, way).size();
    if (operations.empty() || of_a_pass == 0) continue;
    const size_t pass = (operations.size() - 1) / of_a_pass;
    const uint64_t bytes = operations.back().bytes;
    if (pass >= pipeline.passes() || bytes == pipeline.bytes(pass)) continue;
    const TokenBatch& batch = pipeline.batch(pass);
    const lab::LlamaConfig& model = pipeline.training.model;
    const bool of_logits = bytes * static_cast<uint64_t>(model.dim) ==
                           pipeline.bytes(pass) * static_cast<uint64_t>(model.vocab_size);
    bool of_another = false;
    for (size_t k = 0; k < pipeline.passes(); ++k) of_another |= bytes == pipeline.bytes(k);
    return fmt::format(
        "rank {} has a message of {} bytes: what travels is [B, T, C], here [{}, {}, {}] and {} "
        "bytes; {}\n",
        s, bytes, batch.batch, batch.length, model.dim, pipeline.bytes(pass),
        of_logits ? "this is as large as the logits, which stay on the last stage"
        : of_another
            ? "this is as large as that of another batch: is a tensor kept from one call to the "
              "next, or was a batch left out, such as one without tokens?"
            : "batch.batch and batch.length of this call say so, whatever tokens there are");
  }
  return "";
}

}  // namespace

Tensor without_padding(const Tensor& tensor, const TokenBatch& batch) {
  const Tensor masked = tensor.clone();
  const int64_t dim = tensor.shape()[2];
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    if (batch.tokens[i] == lab::kPadding)
      std::fill_n(masked.data() + static_cast<int64_t>(i) * dim, dim, 0.0F);
  return masked;
}

uint64_t Pipeline::bytes(size_t pass) const {
  return static_cast<uint64_t>(batch(pass).batch * batch(pass).length * training.model.dim) *
         sizeof(float);
}

std::vector<Parcel> Pipeline::inputs() const {
  std::vector<Parcel> all;
  for (int stage = 0; stage < training.stages(); ++stage) all.push_back(training.input(stage));
  return all;
}

std::vector<Layout> whole_world(int ranks) {
  return std::vector<Layout>(cases_of(1, 0).size(), in_order(ranks));
}

std::vector<Layout> parts_of_six_ranks() {
  const Layout reversed = {{5, 4, 3, 2, 1, 0}};
  return {in_order(6),
          {{4, 0, 3}, {5, 1}, {2}},
          {{1, 0}, {2, 3}, {5, 4}},
          in_order(6),
          reversed,
          {{3, 1, 5, 0}, {2, 4}},
          {{5, 0, 1, 2, 4}, {3}},
          {{2, 0, 1}, {4, 5, 3}},
          {{0, 1, 2, 3}, {4, 5}},
          {{1, 3}, {0, 2}, {5}, {4}}};
}

std::vector<Layout> parts_of_three_ranks() {
  return {{{2, 0}, {1}}, in_order(3), in_order(3), {{2, 1, 0}}, in_order(3)};
}

void judge_pipelines(const PipelineScenario& scenario, const std::vector<Layout>& layouts,
                     uint64_t seed, lab::grading::JobOptions options) {
  std::vector<std::vector<Pipeline>> jobs;
  std::vector<Call> calls;
  for (const Layout& layout : layouts) {
    jobs.push_back(
        pipelines_of(layout, jobs.size(), 10'000 * lab::grading::scenario_seed() + seed));
    for (Pipeline& pipeline : jobs.back())
      if (scenario.init_std) pipeline.training.model.init_std = *scenario.init_std;
    calls.push_back(call_of(scenario, jobs.back()));
  }
  if (scenario.way)
    options.explain = [&](size_t call, const std::vector<Parcel>& ranks,
                          const std::string& diagnosis) {
      std::string words;
      for (const Pipeline& pipeline : jobs[call])
        if (words.empty()) words = wrong_size(pipeline, stages_of(pipeline, ranks), *scenario.way);
      return words + diagnosis;
    };
  judge_calls(calls, options, [&](size_t call, const std::vector<Parcel>& ranks) {
    for (const Pipeline& pipeline : jobs[call])
      scenario.judge(pipeline, stages_of(pipeline, ranks));
  });
}

TokenBatch decoy(const Pipeline& pipeline, size_t stage, size_t pass) {
  const TokenBatch& right = pipeline.batch(pass);
  const size_t kind = pass < 2 ? pass : (stage + pass) % 3;
  if (kind == 2) return {right.batch, right.length, {}};
  constexpr int64_t kOneToken = 1;
  std::vector<int64_t> lengths(static_cast<size_t>(right.batch), kind == 0 ? right.length : 0);
  lengths[0] /= 2;
  return lab::grading::draw_tokens(lengths, right.length, kOneToken, pass);
}

Chain::Chain(const Pipeline& pipeline) {
  const TrainingCase& c = pipeline.training;
  for (int stage = 0; stage < c.stages(); ++stage) {
    stages_.emplace_back(c.model, c.span(stage), lab::Device::kCpu, c.seed);
    lab::grading::fill_gradients(stages_.back(), c.leftover);
  }
}

std::vector<Tensor> Chain::forward(const TokenBatch& batch, const HandOn& hand_on) {
  std::vector<Tensor> outputs;
  Tensor received;
  for (size_t s = 0; s < stages_.size(); ++s) {
    outputs.push_back((s == 0 ? stages_[s].forward(batch) : stages_[s].forward(received)).clone());
    received = hand_on ? hand_on(s, received, outputs.back()) : outputs.back();
  }
  return outputs;
}

void Chain::backward(const Tensor& logits_gradient, const HandOn& hand_on) {
  Tensor received = logits_gradient;
  for (size_t s = stages_.size(); s-- > 0;) {
    const Tensor made = stages_[s].backward(received.clone());
    received = hand_on && s > 0 ? hand_on(s, received, made) : made;
  }
}

std::vector<Numbers> Chain::gradients() const {
  std::vector<Numbers> all;
  for (const lab::LlamaStage& stage : stages_)
    all.push_back(lab::grading::to_doubles(lab::grading::packed(stage, stage.gradients())));
  return all;
}

namespace {

/// In any order: a message may be posted long before it is waited for.
void expect_messages(const Pipeline& pipeline, size_t stage,
                     const std::vector<Operation>& operations, std::vector<Message> missing,
                     const std::string& which) {
  const std::string start = fmt::format("the numbers are right, but rank {} ", stage);
  const std::string details = fmt::format("\nrank {}: {}", stage, in_words(operations));
  for (const Operation& operation : operations)
    if (!is_message(operation.kind))
      stop(fmt::format("{}also calls {}: messages between neighbours are all that is needed{}",
                       start, op_name(operation.kind), details));
  for (const OpKind kind : {OpKind::kSend, OpKind::kRecv}) {
    const auto got = std::ranges::count(operations, kind, &Operation::kind);
    const auto wanted = std::ranges::count(missing, kind, &Message::kind);
    if (got != wanted)
      stop(fmt::format("{}{} {}, it should be {}: {}{}", start,
                       kind == OpKind::kSend ? "sends" : "receives", counted(got, "message"),
                       wanted, which, details));
  }
  for (const Operation& operation : operations) {
    const auto found = std::ranges::find_if(missing, [&](const Message& message) {
      return message.kind == operation.kind && message.bytes == operation.bytes &&
             pipeline.ranks[message.peer] == operation.peer;
    });
    if (found == missing.end())
      stop(
          fmt::format("{}has a message of another size than [B, T, C], or with a rank that is no "
                      "neighbour: {}{}",
                      start, which, details));
    missing.erase(found);
    if (operation.tag != 0)
      stop(fmt::format("{}has a message with the tag {}: all must have the tag 0, the default{}",
                       start, operation.tag, details));
  }
}

}  // namespace

void expect_messages_of_pass(const Pipeline& pipeline, const std::vector<Parcel>& stages,
                             size_t pass, Way way) {
  const bool forward = way == Way::kForward;
  const size_t end = forward ? stages.size() - 1 : 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const std::vector<Operation> operations =
        operations_of(stages[s].part(fmt::format("traffic.{}", pass)));
    if (s == end && std::ranges::count(operations, OpKind::kSend, &Operation::kind) > 0)
      stop(fmt::format("rank {}, the {}\nrank {}: {}", s,
                       forward ? "last stage, sends its output on: no stage comes after it, and "
                                 "the logits stay where they are"
                               : "first stage, sends a gradient on: no stage is before it",
                       s, in_words(operations)));
    expect_messages(pipeline, s, operations, messages(pipeline, s, pass, way),
                    forward
                        ? "one per pass, the hidden states, to the next stage"
                        : "one per pass, the gradient of the hidden states, to the previous stage");
  }
}

void expect_messages_of_step(const Pipeline& pipeline, size_t stage, size_t step,
                             const std::vector<Operation>& operations) {
  std::vector<Message> right = messages(pipeline, stage, step, Way::kForward);
  for (const Message& message : messages(pipeline, stage, step, Way::kBackward))
    right.push_back(message);
  expect_messages(
      pipeline, stage, operations, right,
      "in each step, the hidden states to the next stage and their gradient to the previous stage");
}

void expect_same_weights(const std::vector<Parcel>& stages, size_t pass) {
  for (size_t s = 0; s < stages.size(); ++s)
    if (lab::grading::to_doubles(stages[s].tensor(fmt::format("weights.{}", pass))) !=
        lab::grading::to_doubles(stages[s].tensor("start")))
      stop(fmt::format("rank {}: the stage's weights change: only optimizer.step does that", s));
}

}  // namespace lab04
