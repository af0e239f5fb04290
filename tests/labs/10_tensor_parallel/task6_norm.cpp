// Task 6: a norm that counts every weight once.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10::task6 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct ClipCase {
  std::string name;
  lab::LlamaConfig model;
  double limit = 0.5;  // of the norm
  float scale = 1;     // of the gradients
  uint64_t seed = 1;
  float outlier = 0;  // one gradient that is not finite; 0: none
};

std::map<std::string, Tensor> gradients_of(const ClipCase& c) {
  const lab::LlamaStage model(c.model, lab::StageSpan::whole(c.model), lab::Device::kCpu, 1);
  std::map<std::string, Tensor> gradients;
  for (const lab::Parameter& parameter : model.named_parameters())
    gradients[parameter.name] =
        draw_tensor(parameter.value.shape(), c.scale, c.seed + gradients.size());
  if (c.outlier != 0) gradients.at("model.norm.weight").values()[1] = c.outlier;
  return gradients;
}

double squares_of(const Tensor& tensor) {
  double sum = 0;
  for (const double value : numbers_of(tensor)) sum += value * value;
  return sum;
}

/// Sums of squares of the gradients that ranks hold.
struct Squares {
  double matrices = 0;
  double norms = 0;          // once
  double of_first_rank = 0;  // of the norms that the model's rank 0 holds
  double first_slices = 0;   // of what the first slice of every stage holds
  double embedding = 0;      // of the embedding, and of its first slice
  double first_of_embedding = 0;
  double head = 0;  // the same of the head
  double first_of_head = 0;
  double norm_of_ranks = 0;  // the ranks' norms, added
  double whole_numbers = 0;  // each tensor's cut down to a whole number
};

Squares squares_in(const std::map<std::string, Tensor>& gradients, size_t tp,
                   const std::vector<Parcel>& ranks) {
  Squares s;
  for (const auto& [name, gradient] : gradients) {
    const double all = squares_of(gradient);
    (gradient.dims() == 1 ? s.norms : s.matrices) += all;
    if (gradient.dims() == 1 && ranks[0].has(name)) s.of_first_rank += all;
    const double first = squares_of(lab::slice_of(name, gradient, slice(0, tp)));
    s.first_slices += first;
    if (name == "model.embed_tokens.weight") {
      s.embedding = all;
      s.first_of_embedding = first;
    }
    if (name == "lm_head.weight") {
      s.head = all;
      s.first_of_head = first;
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    double own = 0;
    for (const auto& [name, gradient] : gradients)
      if (ranks[r].has(name) && (gradient.dims() > 1 || r % tp == 0)) {
        const double of_tensor = squares_of(lab::slice_of(name, gradient, slice(r % tp, tp)));
        own += of_tensor;
        s.whole_numbers += std::floor(of_tensor);
      }
    s.norm_of_ranks += std::sqrt(own);
  }
  return s;
}

/// What is wrong with the messages of clip_gradients on so many ranks; empty if nothing is.
std::string wrong_clip_messages(size_t ranks, const Parcel& noted) {
  const std::vector<Operation> sent = operations_of(noted);
  uint64_t bytes = 0;
  for (const Operation& operation : sent) bytes += operation.bytes;
  if (sent.empty() && ranks > 1)
    return "clip_gradients sends nothing; it should send one number, whatever max_norm is";
  if (!sent.empty() && ranks == 1)
    return "clip_gradients sends a message although there is only one rank; it called: " +
           in_words(sent);
  if (sent.size() <= 1 && bytes <= sizeof(double)) return "";
  return "clip_gradients sends more than one number; it called: " + in_words(sent);
}

void judge_clip(const ClipCase& c, size_t tp, const std::vector<Parcel>& ranks) {
  const std::map<std::string, Tensor> gradients = gradients_of(c);
  const Squares squares = squares_in(gradients, tp, ranks);
  const double matrices = squares.matrices;
  const double norms = squares.norms;
  const double norm = std::sqrt(matrices + norms);
  if (!std::isfinite(norm)) {
    for (size_t r = 0; r < ranks.size(); ++r)
      if (const double got = ranks[r].number("norm"); std::isfinite(got))
        stop(
            fmt::format("clip_gradients returns {:g} on rank {}, although a gradient of the model "
                        "is {:g}: then the norm must not be finite, on any rank",
                        got, r, c.outlier));
    return;
  }
  const double limit = c.limit * norm;
  const double factor = std::min(1.0, c.limit);
  for (size_t r = 0; r < ranks.size(); ++r) {
    double own = 0;
    for (const auto& [name, gradient] : gradients) {
      if (!ranks[r].has(name)) continue;
      own += squares_of(lab::slice_of(name, gradient, slice(r % tp, tp)));
    }
    const std::string wrong_traffic = wrong_clip_messages(ranks.size(), ranks[r].part("sent"));
    lab::grading::expect(
        ranks[r].number("norm"),
        {.what = fmt::format("clip_gradients: the norm on rank {}", r),
         .values = {norm},
         .tolerance = {1e-6 * norm},
         .mistakes =
             [&] {
               std::vector<Mistake> all{
                   {{std::sqrt(matrices + static_cast<double>(tp) * norms)},
                    "clip_gradients: the norms' weights, which every slice holds, are counted once "
                    "per slice"},
                   {{std::sqrt(matrices + norms +
                               static_cast<double>(tp - 1) *
                                   squares_of(gradients.at("model.norm.weight")))},
                    "clip_gradients: model.norm.weight, which every slice of the last stage holds, "
                    "is counted once per slice"},
                   {{std::sqrt(matrices)}, "clip_gradients: the norms' weights are not counted"},
                   {{std::sqrt(own)},
                    "clip_gradients: the norm of this rank's weights alone: ask "
                    "the other slices and stages"},
                   {{matrices + norms}, "clip_gradients: the square of the norm: take the root"},
                   {{norm * std::min(1.0, c.limit)},
                    "clip_gradients returns the norm after clipping, not before"},
                   {{std::sqrt(matrices + squares.of_first_rank)},
                    "clip_gradients: of the norms' weights only those of the model's first rank "
                    "are counted: every stage has some"},
                   {{std::sqrt(squares.first_slices)},
                    "clip_gradients: only the first slice of each stage is counted; matrices are "
                    "divided"},
                   {{std::sqrt(matrices + norms - squares.embedding + squares.first_of_embedding)},
                    "clip_gradients: of the embedding only the first slice is counted"},
                   {{std::sqrt(matrices + norms - squares.head + squares.first_of_head)},
                    "clip_gradients: of the head only the first slice is counted"},
                   {{std::sqrt(matrices + norms - squares.embedding + squares.first_of_embedding -
                               squares.head + squares.first_of_head)},
                    "clip_gradients: of embedding and head only the first slice is counted: a "
                    "matrix of one row is as long as a norm, but it is still a matrix"},
                   {{std::sqrt(matrices + norms * static_cast<double>(tp) /
                                              static_cast<double>(ranks.size()))},
                    "clip_gradients: the squares of the norms are divided by the number of the "
                    "model's ranks, but each norm is on the slices of one stage only"},
                   {{std::sqrt(matrices + norms * static_cast<double>(tp) / 2)},
                    "clip_gradients: half of the norms' squares are counted on each slice: that is "
                    "right for two slices only"},
                   {{std::sqrt(squares.whole_numbers)},
                    "clip_gradients: squares are added up as whole numbers: a sum that begins with "
                    "the int 0 is an int; std::accumulate, for instance, needs 0.0"},
                   {{squares.norm_of_ranks},
                    "clip_gradients: the ranks' norms are added: add their squares"}};
               for (const auto& [name, gradient] : gradients)
                 all.push_back({{std::sqrt(matrices + norms - squares_of(gradient))},
                                "clip_gradients: the gradient of " + name + " is not counted"});
               return all;
             },
         .unexplained = wrong_traffic});
    if (!wrong_traffic.empty()) stop(wrong_traffic);
    for (const auto& [name, gradient] : gradients) {
      if (!ranks[r].has(name)) continue;
      const Numbers before = numbers_of(lab::slice_of(name, gradient, slice(r % tp, tp)));
      const Numbers zero(before.size(), 0.0);
      const bool is_norm = gradient.dims() == 1;
      expect_tensor(
          fmt::format("clip_gradients: the gradient of {} on rank {}", name, r),
          ranks[r].tensor(name), plus(zero, before, factor),
          [&]() -> std::vector<Mistake> {
            return {{before, is_norm ? "clip_gradients: the gradients of the norms are as they "
                                       "were, although those of the matrices are scaled: scale "
                                       "all"
                                     : "clip_gradients: the gradients are as they were, although "
                                       "their norm exceeds max_norm"},
                    {plus(zero, before, std::min(1.0, limit / std::sqrt(own))),
                     "clip_gradients: scaled by the norm of this rank's own gradients, as "
                     "lab::clip_gradients does it"},
                    {plus(zero, before, c.limit / norm),
                     "clip_gradients: divided by the square of the norm: multiply by max_norm / "
                     "norm"},
                    {plus(zero, before, c.limit),
                     "clip_gradients: scaled up to max_norm; gradients that are short enough must "
                     "stay as they are"},
                    {plus(zero, before, c.limit / std::sqrt(static_cast<double>(ranks.size()))),
                     "clip_gradients: scaled to a rank's share of max_norm: the gradients of all "
                     "ranks together must have the norm max_norm"},
                    {plus(zero, before, limit / (norm + 1e-6)),
                     "clip_gradients: scaled by max_norm / (norm + 1e-6), as PyTorch does it: "
                     "scale by max_norm / norm"},
                    {plus(zero, before, 1 / norm),
                     "clip_gradients: divided by the norm: multiply by max_norm / norm"},
                    {plus(zero, before, norm / limit),
                     "clip_gradients: multiplied by norm / max_norm: it is the other way round"},
                    {plus(zero, before, limit),
                     "clip_gradients: multiplied by max_norm, not by max_norm / norm"}};
          },
          {.terms = 1, .least = double{c.scale}});
    }
  }
  lab::grading::expect_same_bits(lab::grading::numbers_of(ranks, "norm"),
                                 "clip_gradients: the norm");
}

/// On pp stages of tp slices.
void expect_clip(size_t pp, size_t tp, uint64_t seed, const JobOptions& options) {
  const uint64_t drawn = seed + 1000 * lab::grading::scenario_seed();
  const lab::LlamaConfig model{.vocab_size = 13,
                               .dim = 24,
                               .heads = 6,
                               .kv_heads = 6,
                               .layers = 2 * static_cast<int64_t>(pp),
                               .hidden_dim = 12,
                               .context = 4};
  lab::LlamaConfig tied = model;
  tied.tied_head = pp == 1;
  lab::LlamaConfig few = model;  // a slice has one row of them, as long as a norm
  few.vocab_size = static_cast<int64_t>(tp);
  std::vector<ClipCase> cases{{"clipped", model, 0.5},
                              {"just not clipped", model, 1.01, 1},
                              {"just clipped, small gradients", model, 0.99, 1e-3F},
                              {"far from clipped", model, 7, 1e-3F},
                              {"a tied head", tied, 0.25, 2},
                              {"max_norm is infinite", model, kInfinite},
                              {"one token of the vocabulary on each slice", few, 0.5},
                              {"all gradients are 0", model, 0.5, 0},
                              {"a norm whose square is no float", model, 0.5, 1e20F},
                              {.name = "an infinite gradient",
                               .model = model,
                               .outlier = std::numeric_limits<float>::infinity()},
                              {.name = "a gradient that is no number",
                               .model = model,
                               .outlier = std::numeric_limits<float>::quiet_NaN()}};
  std::vector<Call> calls;
  for (ClipCase& c : cases) {
    c.seed = drawn + 100 * calls.size();
    Parcel input;
    set_model(c.model, input);
    input.set("tp", static_cast<double>(tp));
    double squares = 0;
    for (const auto& [name, gradient] : gradients_of(c)) {
      input.set(name, gradient);
      squares += squares_of(gradient);
    }
    const bool is_usual = squares > 0 && std::isfinite(squares);
    input.set("max_norm", is_usual ? c.limit * std::sqrt(squares) : 1.0);
    calls.push_back(
        {.scenario = "clip", .inputs = std::vector<Parcel>(pp * tp, input), .name = c.name});
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge_clip(cases[k], tp, ranks); });
}

TEST(Task6, NormOfThreeSlices) { expect_clip(1, 3, 64, late_messages(64)); }
TEST(Task6, NormOfTwoStagesOfTwoSlices) { expect_clip(2, 2, 65, late_messages(65)); }
TEST(Task6, NormOfOneRank) { expect_clip(1, 1, 66, late_messages(66)); }
TEST(Task6, NormOfThreeStages) { expect_clip(3, 1, 67, late_messages(67)); }

}  // namespace
}  // namespace lab10::task6
