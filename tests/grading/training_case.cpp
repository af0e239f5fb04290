// Drawing training steps, and packing them for ranks.
#include "tests/grading/training_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "tests/grading/training_oracle.h"

namespace lab::grading {
namespace {

/// Draws from a seed, the same on every machine.
class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed) {}
  /// From 0 to count - 1.
  int64_t below(int64_t count) {
    return static_cast<int64_t>(generator_() % static_cast<uint64_t>(count));
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  uint64_t seed() { return generator_(); }

 private:
  std::mt19937_64 generator_;
};

/// Large initial values, so that the gradients of all weights are well above rounding.
LlamaConfig draw_model(Draw& draw, int stages, bool large) {
  const int64_t heads = draw.between(1, 3);
  const int64_t head_dim = 2 * draw.between(2, 3);
  const int64_t dim = heads * head_dim;
  return {.vocab_size = large ? 66'000 / dim + 1 : draw.between(17, 33),
          .dim = dim,
          .heads = heads,
          .kv_heads = draw.below(2) == 0 ? heads : 1,
          .layers = std::max<int64_t>(stages, draw.between(1, 3)),
          .hidden_dim = draw.between(7, 20),
          .context = draw.between(6, 9),
          .init_std = 0.3F};
}

std::vector<int64_t> draw_layers(Draw& draw, int64_t layers, int stages) {
  if (stages == 1) return {};
  std::vector<int64_t> counts(static_cast<size_t>(stages), 1);
  for (int64_t rest = layers - stages; rest > 0; --rest)
    ++counts[static_cast<size_t>(draw.below(stages))];
  return counts;
}

enum class Rows { kFull, kUnequal, kEmpty };

TokenBatch draw_batch(Draw& draw, const LlamaConfig& model, Rows rows, int64_t batch,
                      int64_t length) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < batch; ++b)
    lengths.push_back(rows == Rows::kFull      ? length
                      : rows == Rows::kUnequal ? draw.between(b == 0 ? 2 : 0, length)
                                               : 1);  // a single token predicts nothing
  // That a batch begins with padding does not mean that it has no targets.
  if (batch > 1 && lengths.back() == 0) std::swap(lengths.front(), lengths.back());
  return draw_tokens(lengths, length, model.vocab_size, draw.seed());
}

/// What is special about a case.
struct Traits {
  std::string name;
  int64_t microbatches = 1;  // before they are made a multiple
  Rows rows = Rows::kUnequal;
  enum class Targetless { kNone, kMicrobatch, kReplica, kStep } targetless = Targetless::kNone;
  bool tied = false;
  bool large = false;    // a matrix has more than 2^16 weights: what is done in pieces is seen
  bool repeats = false;  // the last microbatch of a replica is the one before it once more
  std::string optimizer = "sgd";
  bool warms_up = false;
  double clip = 0;         // of the norm of the first step's gradient
  double loss_factor = 1;  // what the step is given is another loss than lab 01's
  float leftover = 0;
  int steps = 2;
  std::optional<size_t> nan_loss_step = {};
};

TrainingCase draw_case(const CaseLimits& limits, const Traits& traits, Draw& draw) {
  TrainingCase c{.name = traits.name, .model = draw_model(draw, limits.stages, traits.large)};
  c.seed = draw.seed() % 1000;
  c.replicas = limits.replicas;
  c.layers_of_stages = draw_layers(draw, c.model.layers, limits.stages);
  c.model.tied_head = traits.tied && limits.stages == 1;
  c.optimizer = traits.optimizer;
  c.learning_rate = 0.01F * static_cast<float>(draw.between(2, 7));
  c.warms_up = traits.warms_up;
  c.leftover = traits.leftover;
  c.nan_loss_step = traits.nan_loss_step;
  const bool counts_differ = limits.unequal_counts && traits.rows == Rows::kUnequal;
  const int64_t empty_replica = draw.below(limits.replicas);
  for (int step = 0; step < traits.steps; ++step) {
    auto& replicas = c.steps.emplace_back();
    const int64_t batch = draw.between(1, 2);
    const int64_t length =
        traits.rows == Rows::kFull ? c.model.context : draw.between(4, c.model.context);
    for (int64_t replica = 0; replica < limits.replicas; ++replica) {
      auto& microbatches = replicas.emplace_back();
      int64_t count = counts_differ ? draw.between(1, limits.microbatches) : traits.microbatches;
      count = std::min<int64_t>(count, limits.microbatches);
      count = (count + limits.multiple_of - 1) / limits.multiple_of * limits.multiple_of;
      const bool no_targets =
          (traits.targetless == Traits::Targetless::kStep && step == 0) ||
          (traits.targetless == Traits::Targetless::kReplica && replica == empty_replica);
      if (no_targets && limits.unequal_counts && step == 1) count = 0;  // and no microbatch at all
      for (int64_t k = 0; k < count; ++k) {
        const bool empty = no_targets || (traits.targetless == Traits::Targetless::kMicrobatch &&
                                          (k == step % count) && count > 1);
        const bool own_shape = !limits.equal_shapes && traits.rows == Rows::kUnequal;
        microbatches.push_back(draw_batch(draw, c.model, empty ? Rows::kEmpty : traits.rows,
                                          own_shape ? draw.between(1, 3) : batch,
                                          own_shape ? draw.between(3, c.model.context) : length));
      }
      if (traits.repeats && count > 1) microbatches.back() = microbatches[microbatches.size() - 2];
    }
  }
  if (traits.clip > 0) c.max_norm = traits.clip * first_gradient_norm(c);
  scale_loss(c, traits.loss_factor);
  return c;
}

void set_model(const LlamaConfig& model, Parcel& parcel) {
  parcel.set("model", std::vector<double>{
                          static_cast<double>(model.vocab_size), static_cast<double>(model.dim),
                          static_cast<double>(model.heads), static_cast<double>(model.kv_heads),
                          static_cast<double>(model.layers), static_cast<double>(model.hidden_dim),
                          static_cast<double>(model.context), double{model.init_std},
                          model.tied_head ? 1.0 : 0.0});
}

/// What a stage is given of a microbatch that it must not read: nothing, or other tokens.
TokenBatch decoy(const TokenBatch& batch, int64_t vocab, uint64_t seed) {
  if (seed % 2 == 0) return {batch.batch, batch.length, {}};
  std::vector<int64_t> lengths(static_cast<size_t>(batch.batch), batch.length);
  return draw_tokens(lengths, batch.length, vocab, seed);
}

/// The first token of a row is no target: the last stage does not need it, and gets another one.
TokenBatch only_targets(TokenBatch batch, int64_t vocab) {
  for (int64_t b = 0; b < batch.batch; ++b) {
    int32_t& first = batch.tokens[static_cast<size_t>(b * batch.length)];
    if (first != kPadding) first = (first + 1) % static_cast<int32_t>(vocab);
  }
  return batch;
}

}  // namespace

void scale_loss(TrainingCase& c, double factor) {
  c.loss_factor *= factor;
  c.max_norm *= factor;
  if (c.optimizer == "sgd") c.learning_rate /= static_cast<float>(factor);
}

StageSpan TrainingCase::span(int stage) const {
  if (stages() == 1) return StageSpan::whole(model);
  int64_t first = 0;
  for (int s = 0; s < stage; ++s) first += layers_of_stages[static_cast<size_t>(s)];
  return {first, first + layers_of_stages[static_cast<size_t>(stage)], stage == 0,
          stage + 1 == stages()};
}

Parcel TrainingCase::input(int rank) const {
  const int stage = rank % stages();
  const int replica = rank / stages();
  Parcel parcel;
  set_model(model, parcel);
  parcel.set("seed", static_cast<double>(seed));
  const StageSpan own = span(stage);
  parcel.set("span", std::vector<double>{static_cast<double>(own.first_layer),
                                         static_cast<double>(own.last_layer),
                                         own.embeds ? 1.0 : 0.0, own.has_head ? 1.0 : 0.0});
  parcel.set_text("optimizer", optimizer);
  parcel.set("max_norm", max_norm);
  parcel.set("leftover", double{leftover});
  parcel.set("loss_factor", loss_factor);
  parcel.set("replicas", replicas);
  parcel.set("stages", stages());
  parcel.set("steps", static_cast<double>(steps.size()));
  for (size_t step = 0; step < steps.size(); ++step) {
    const auto& microbatches = steps[step][static_cast<size_t>(replica)];
    parcel.set(fmt::format("learning_rate.{}", step), double{rate(step)});
    if (has_nan_loss(step, static_cast<size_t>(replica)))
      parcel.set(fmt::format("nan_loss.{}", step), 1);
    parcel.set(fmt::format("microbatches.{}", step), static_cast<double>(microbatches.size()));
    for (size_t k = 0; k < microbatches.size(); ++k) {
      const TokenBatch& batch = microbatches[k];
      parcel.set(fmt::format("microbatch.{}.{}", step, k),
                 own.embeds     ? batch
                 : own.has_head ? only_targets(batch, model.vocab_size)
                                : decoy(batch, model.vocab_size, seed + step + k));
    }
  }
  return parcel;
}

std::vector<TrainingCase> draw_cases(const CaseLimits& limits, uint64_t seed) {
  using Targetless = Traits::Targetless;
  const bool few_ranks = limits.replicas * limits.stages <= 2;  // or so many steps take seconds
  Draw draw(seed);
  const std::vector<Traits> traits = {
      {.name = "one full microbatch", .rows = Rows::kFull},
      {.name = "unequal targets, gradients clipped",
       .microbatches = 3,
       .clip = 0.31,
       .loss_factor = 1e-7,  // what is added to a norm of this size is seen
       .leftover = 0.25F,
       .steps = 3},
      {.name = "a microbatch without targets, and a tied head",
       .microbatches = 2,
       .targetless = Targetless::kMicrobatch,
       .tied = true,
       .leftover = kLargeLeftover},
      {.name = "a replica without targets",
       .microbatches = 2,
       .targetless = Targetless::kReplica,
       .optimizer = "adam",
       .warms_up = true,
       .clip = 0.57,
       .leftover = kLargeLeftover,
       .steps = 3},
      {.name = "the first step without any target",
       .microbatches = 2,
       .targetless = Targetless::kStep,
       .tied = true,
       .optimizer = "adam",
       .clip = 0.43,
       .leftover = 0.25F},
      {.name = "a loss that is not a number in the second step, although its gradient is right",
       .microbatches = 2,
       .steps = 3,
       .nan_loss_step = 1},
      {.name = "gradients just short enough, in a large model; two microbatches are the same",
       .microbatches = 3,
       .large = true,
       .repeats = true,
       .clip = 1.07,
       .loss_factor = 4},
      {.name = "many steps",
       .rows = Rows::kFull,
       .clip = std::numeric_limits<double>::infinity(),  // never exceeded
       .steps = few_ranks ? 120 : 20},
  };
  std::vector<TrainingCase> cases;
  for (const Traits& each : traits) cases.push_back(draw_case(limits, each, draw));
  return cases;
}

TokenBatch draw_tokens(const std::vector<int64_t>& lengths, int64_t length, int64_t vocab,
                       uint64_t seed) {
  Draw draw(seed);
  TokenBatch batch{static_cast<int64_t>(lengths.size()), length, {}};
  for (int64_t row_length : lengths)
    for (int64_t t = 0; t < length; ++t) {
      const auto token = static_cast<int32_t>(draw.below(vocab));
      batch.tokens.push_back(t < row_length ? token : kPadding);
    }
  return batch;
}

Tensor draw_tensor(const Shape& shape, double scale, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const Tensor tensor = Tensor::empty(shape);
  for (float& value : tensor.values())
    value = static_cast<float>(scale * (static_cast<double>(generator() >> 11) * 0x1.0p-52 - 1.0));
  return tensor;
}

}  // namespace lab::grading
