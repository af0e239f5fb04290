#include "common/tools/plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/error.h"
#include "common/model/slice.h"
#include "common/tools/plan/model_cost.h"

namespace lab {
namespace {

void check(const Training& training, const Cluster& cluster, const Layout& layout) {
  training.validate();
  cluster.validate();
  const auto [dp, pp, m, tp, shard] = layout;
  require(shard >= 0 && shard <= 3 && (shard == 0 || (pp == 1 && tp == 1)),
          "shard {} with pp {} x tp {}: 0 to 3, and above 0 only with pp 1 x tp 1", shard, pp, tp);
  require(dp >= 1 && pp >= 1 && m >= 1 && tp >= 1,
          "dp {} x pp {} x tp {}, m {}: all must be at least 1", dp, pp, tp, m);
  const int64_t ranks = int64_t{dp} * pp * tp;
  require(ranks <= cluster.devices, "dp {} x pp {} x tp {} needs {} devices; there are {}", dp, pp,
          tp, ranks, cluster.devices);
  require(pp <= training.model.layers, "{} stages of a model of {} layers", pp,
          training.model.layers);
  require(pp == 1 || !training.model.tied_head,
          "the model's head is tied to its embedding: it cannot be cut into {} stages", pp);
  require(training.batch % (int64_t{dp} * m) == 0,
          "{} sequences a step cannot be divided among {} pipelines with {} microbatches each",
          training.batch, dp, m);
}

/// The sizes of the largest slice of a model.
LlamaConfig slice_of_model(const LlamaConfig& model, int tp) {
  return slice_config(model, {.rank = tp - 1, .ranks = tp});
}

/// How fast a rank computes, on its own device or on shared cores.
struct Share {
  double flops = 0;  // of an undisturbed rank
  double slots = 0;  // stages of one pipeline that can compute at full rate at once; 0: all

  Share(const Cluster& cluster, const Layout& layout) : flops(cluster.device.flops) {
    if (cluster.cores == 0) return;
    const int threads = std::max(1, cluster.cores / layout.ranks());
    flops *= threads;
    slots = static_cast<double>(cluster.cores) / threads / layout.dp / layout.tp;
  }

  /// Stages that a pipeline of `stages` keeps busy at best.
  double busy(int stages) const { return slots > 0 ? std::min<double>(slots, stages) : stages; }
};

class Estimator {
 public:
  Estimator(const Training& training, const Cluster& cluster, const Layout& layout)
      : training_(training),
        cluster_(cluster),
        layout_(layout),
        slice_(slice_of_model(training.model, layout.tp)),
        spans_(balanced_spans(training.model, layout.pp, training.length)),
        share_(cluster, layout),
        microbatch_(training.batch / (int64_t{layout.dp} * layout.m)) {}

  Estimate run() const {
    Estimate result{.layout = layout_, .microbatch = microbatch_, .layers = {}, .memory = {}};
    for (const StageSpan& span : spans_) result.layers.push_back(span.layers());
    add_memory(result);
    add_time(result);
    return result;
  }

 private:
  double tokens() const { return static_cast<double>(microbatch_ * training_.length); }

  void add_memory(Estimate& result) const {
    for (int s = 0; s < layout_.pp; ++s)
      result.memory.push_back(stage_memory(training_, layout_, spans_, s));
    const auto fullest = std::ranges::max_element(result.memory);
    result.fullest_stage = static_cast<int>(fullest - result.memory.begin());
    const double needed = cluster_.cores > 0
                              ? layout_.dp * layout_.tp *
                                    std::accumulate(result.memory.begin(), result.memory.end(), 0.0)
                              : *fullest;
    result.missing = std::max(0.0, needed - cluster_.device.memory);
  }

  void add_time(Estimate& result) const {
    const std::vector<StageCosts> silent = costs(/*messages=*/false);
    double work = 0;  // seconds of a pipeline's ranks
    for (const StageCosts& cost : silent) work += layout_.m * (cost.forward + cost.backward);
    const std::vector<double> ends =
        stage_ends(training_.order, layout_.m, costs(/*messages=*/true), share_.slots);
    double reduced = 0;
    for (int s = 0; s < layout_.pp; ++s)
      reduced = std::max(reduced, ends[static_cast<size_t>(s)] + all_reduce(s));
    // With shared cores, a delay may happen to help other ranks; then it is no loss.
    const double passes = std::min(
        reduced, std::ranges::max(stage_ends(training_.order, layout_.m, silent, share_.slots)));
    const double update = update_time();
    const double ideal = work / share_.busy(layout_.pp);

    result.step = reduced + update;
    result.tokens_per_s = static_cast<double>(training_.batch * training_.length) / result.step;
    result.compute = ideal / result.step;
    result.bubble = std::max(0.0, passes - ideal) / result.step;
    result.communication = (reduced - passes) / result.step;
    result.update = update / result.step;
  }

  std::vector<StageCosts> costs(bool messages) const {
    const double bytes =
        tokens() * static_cast<double>(training_.model.dim) * training_.precision.value;
    std::vector<StageCosts> result;
    for (int s = 0; s < layout_.pp; ++s) {
      const StageSpan& span = spans_[static_cast<size_t>(s)];
      const StageFlops flops = stage_flops(slice_, span, training_.length, training_.recompute);
      const double sum = messages ? sum_over_slices(s, bytes) : 0;
      const auto in_layers = static_cast<double>(2 * span.layers());
      const double again = training_.recompute ? in_layers : 0;
      result.push_back({.forward = flops.forward * tokens() / share_.flops +
                                   sum * (in_layers + (span.embeds ? 1 : 0)),
                        .backward = flops.backward * tokens() / share_.flops +
                                    sum * (in_layers + again + (span.has_head ? 1 : 0)),
                        .message = messages ? message(s, bytes) : 0});
    }
    return result;
  }

  int rank(int pipeline, int stage) const { return (pipeline * layout_.pp + stage) * layout_.tp; }

  /// One all-reduce among the slices of a stage, in the slowest pipeline.
  double sum_over_slices(int stage, double bytes) const {
    double longest = 0;
    for (int d = 0; d < layout_.dp && layout_.tp > 1; ++d) {
      const Link& link = cluster_.link(rank(d, stage), rank(d, stage) + layout_.tp - 1);
      longest = std::max(longest, all_reduce_seconds(link, bytes, layout_.tp));
    }
    return longest;
  }

  /// To the previous or the next stage, whichever takes longer, in the slowest pipeline.
  double message(int stage, double bytes) const {
    double longest = 0;
    for (int d = 0; d < layout_.dp; ++d)
      for (const int neighbour : {stage - 1, stage + 1})
        if (neighbour >= 0 && neighbour < layout_.pp)
          longest = std::max(
              longest, transfer_seconds(cluster_.link(rank(d, stage), rank(d, neighbour)), bytes));
    return longest;
  }

  double all_reduce(int stage) const {
    const double bytes = parameters(stage) * training_.precision.gradient;
    const Link& link = cluster_.link(rank(0, stage), rank(layout_.dp - 1, stage));
    const double whole = layout_.dp == 1 ? 0 : all_reduce_seconds(link, bytes, layout_.dp);
    // A reduce-scatter or an all-gather is half of it.
    if (layout_.shard == 2) return whole * (layout_.m + 1) / 2;
    if (layout_.shard == 3) return whole * layout_.m * 3 / 2;
    return whole;
  }

  double update_time() const {
    double longest = 0;
    double sum = 0;
    for (int s = 0; s < layout_.pp; ++s) {
      const double bytes =
          parameters(s) * training_.precision.update / (layout_.shard > 0 ? layout_.dp : 1);
      longest = std::max(longest, bytes);
      sum += layout_.dp * layout_.tp * bytes;
    }
    return (cluster_.cores > 0 ? sum : longest) / cluster_.device.memory_bandwidth;
  }

  double parameters(int stage) const {
    return static_cast<double>(parameter_count(slice_, spans_[static_cast<size_t>(stage)]));
  }

  const Training& training_;
  const Cluster& cluster_;
  Layout layout_;
  LlamaConfig slice_;  // what a rank has of each layer
  std::vector<StageSpan> spans_;
  Share share_;
  int64_t microbatch_;
};

}  // namespace

NumberFormat float32_precision() { return {}; }

NumberFormat mixed_precision() {
  return {.name = "mixed", .value = 2, .gradient = 4, .parameter = 18, .update = 38};
}

void Training::validate() const {
  model.validate();
  require(length >= 1 && length <= model.context,
          "sequences of {} tokens; the model's context is {}", length, model.context);
  require(batch >= 1 && batch <= 1 << 20, "{} sequences a step: give a number between 1 and {}",
          batch, 1 << 20);
  for (const double bytes :
       {precision.value, precision.gradient, precision.parameter, precision.update})
    require(std::isfinite(bytes) && bytes > 0, "{} bytes of a number: give more than 0", bytes);
}

double parameter_memory(const Training& training, const Layout& layout, const StageSpan& span) {
  const LlamaConfig slice = slice_of_model(training.model, layout.tp);
  const auto all = static_cast<double>(parameter_count(slice, span));
  const auto part = static_cast<double>(largest_part(slice));
  const double value = training.precision.value;
  const double gradient = training.precision.gradient;
  const double state = training.precision.parameter - value - gradient;
  const double tied = slice.tied_head ? 1 : 0;
  const int least_shard[] = {3, 2, 1};  // from which on these are divided
  const double bytes[] = {value, gradient, state};
  const double under_way[] = {2 + tied, 1 + tied, 0};  // parts
  double memory = 0;
  for (int kind = 0; kind < 3; ++kind)
    memory += layout.shard < least_shard[kind]
                  ? bytes[kind] * all
                  : bytes[kind] * (all / layout.dp + under_way[kind] * part);
  return memory;
}

double stage_memory(const Training& training, const Layout& layout,
                    const std::vector<StageSpan>& spans, int stage) {
  const StageSpan& span = spans[static_cast<size_t>(stage)];
  const LlamaConfig slice = slice_of_model(training.model, layout.tp);
  const int64_t microbatch = training.batch / (int64_t{layout.dp} * layout.m);
  const auto tokens = static_cast<double>(microbatch * training.length);
  const int in_flight = most_in_flight(training.order, stage, layout.pp, layout.m);
  const auto values =
      static_cast<double>(in_flight * kept_per_token(slice, span, training.recompute) +
                          scratch_per_token(slice, training.recompute));
  return parameter_memory(training, layout, span) + tokens * training.precision.value * values;
}

Estimate estimate(const Training& training, const Cluster& cluster, const Layout& layout) {
  check(training, cluster, layout);
  return Estimator(training, cluster, layout).run();
}

double calibrated_flops(const Training& training, const Cluster& cluster, double tokens_per_s) {
  require(std::isfinite(tokens_per_s) && tokens_per_s > 0,
          "{} tokens/s measured: give a number above 0", tokens_per_s);
  const StageSpan whole = StageSpan::whole(training.model);
  const StageFlops flops = stage_flops(training.model, whole, training.length, training.recompute);
  const auto tokens = static_cast<double>(training.batch * training.length);
  const double update = static_cast<double>(parameter_count(training.model, whole)) *
                        training.precision.update / cluster.device.memory_bandwidth;
  const double seconds = tokens / tokens_per_s - update;
  require(
      seconds > 0,
      "{} tokens/s cannot be: the update alone would take longer by the device's memory bandwidth",
      tokens_per_s);
  return tokens * (flops.forward + flops.backward) / seconds / std::max(1, cluster.cores);
}

}  // namespace lab
