// What well-known mistakes make of the gradients and losses of a wave, and of a step of several.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "tests/grading/reference.h"
#include "tests/grading/training_rank.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::MicrobatchPart;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Weighing;

namespace {

/// Weights of microbatches that are wrong, and why.
std::vector<Weighing> wrong_weighings(const WaveRun& run) {
  const auto m = static_cast<double>(run.parts.microbatches.size());
  const double share = run.share();
  const double own = run.parts.targets;
  const auto of_itself = [](const MicrobatchPart& b) {
    return b.targets > 0 ? 1 / b.targets : 0.0;
  };
  return {
      {"divided by the targets of this wave: call loss with the total_targets that run_actions is "
       "given, those of all waves of the step",
       [=](const MicrobatchPart&) { return own > 0 ? 1 / own : 0.0; }},
      {"loss was called with at least the microbatch's own number of targets: call it with the "
       "total_targets that run_actions is given, whatever it is",
       [=, total = run.wave.total](const MicrobatchPart& b) {
         return 1 / std::max({total, b.targets, 1.0});
       }},
      {"every microbatch is divided by its own targets, and the means are added up: call loss with "
       "the total_targets that run_actions is given",
       of_itself},
      {"a mean of means: call loss with the total_targets that run_actions is given",
       [=](const MicrobatchPart& b) { return of_itself(b) / m; }},
      {"a sum over the targets, not a mean: call loss with the total_targets that run_actions is "
       "given",
       [](const MicrobatchPart&) { return 1.0; }},
      {"divided by the number of microbatches, although loss has divided by all targets already: "
       "averaged twice",
       [=](const MicrobatchPart&) { return share / m; }},
      {"only the last microbatch arrived: is something zeroed or overwritten?",
       [=](const MicrobatchPart& b) { return static_cast<double>(b.number) + 1 == m ? share : 0; }},
      {"only the first microbatch arrived",
       [=](const MicrobatchPart& b) { return b.number == 0 ? share : 0.0; }},
  };
}

/// What stages hand back is divided by m once more, by those in [first, last]; `before` their own
/// backward, or after it.
Numbers divided_on_the_way(const WaveRun& run, int first, int last, bool before) {
  const auto m = static_cast<double>(run.parts.microbatches.size());
  Numbers values = run.parts.combine([&](const MicrobatchPart&) { return run.share(); });
  for (int s = 0; s < run.wave.stages(); ++s) {
    const int nearest = std::max(first, before ? s : s + 1);
    const double factor = std::pow(1 / m, std::max(0, last - nearest + 1));
    const auto [begin, end] = run.oracle.range(s);
    for (size_t i = begin; i < end; ++i) values[i] *= factor;
  }
  return values;
}

/// Which microbatch's tensor is taken instead of microbatch k's.
enum class Pick { kOwn, kOldest, kNewest, kReversed, kNext, kPrevious };

/// Stages that mix microbatches up: what forwards and backwards read of what was received, what is
/// sent, and whose logits the last stage begins its backwards with.
struct MixUp {
  std::string message;
  Pick activation = Pick::kOwn;
  Pick output = Pick::kOwn;
  Pick logits = Pick::kOwn;
  Pick gradient = Pick::kOwn;
  Pick input_gradient = Pick::kOwn;
};

std::vector<MixUp> mix_ups() {
  const std::string forward = "a forward got the activation of another microbatch";
  const std::string backward = "a backward got the gradient of another microbatch";
  std::vector<MixUp> all = {
      {.message = "every backward of the last stage got the gradient of the last microbatch's "
                  "logits: keep the logits of each microbatch until its backward",
       .logits = Pick::kNewest},
      {.message = "what is sent is the output of the newest forward, not of the message's own "
                  "microbatch: keep each until it has been sent",
       .output = Pick::kNewest},
      {.message = "what is sent is the gradient of the newest backward, not of the message's own "
                  "microbatch: keep each until it has been sent",
       .input_gradient = Pick::kNewest},
      {.message = forward + ", that of the oldest recv: a pass reads what was received for its own "
                            "microbatch",
       .activation = Pick::kOldest},
      {.message = backward + ", that of the oldest recv: a pass reads what was received for its "
                             "own microbatch",
       .gradient = Pick::kOldest},
      {.message = "passes read what the oldest recv has brought, not what was received for their "
                  "own microbatch",
       .activation = Pick::kOldest,
       .gradient = Pick::kOldest},
      {.message = backward +
                  ", in reverse order, the last microbatch's for the first, on the last stage too",
       .logits = Pick::kReversed,
       .gradient = Pick::kReversed},
      {.message =
           backward + " on the last stage, in reverse order: the last microbatch's for the first",
       .logits = Pick::kReversed},
  };
  const std::vector<std::pair<Pick, std::string>> picks = {
      {Pick::kNewest, ", always that of the newest recv: is one tensor used for all?"},
      {Pick::kReversed, ": the last microbatch's for the first, and so on"},
      {Pick::kNext, ": that of the next one"},
      {Pick::kPrevious, ": that of the one before"}};
  for (const auto& [pick, words] : picks) {
    all.push_back({.message = forward + words, .activation = pick});
    all.push_back({.message = backward + words, .gradient = pick});
  }
  return all;
}

/// All stages in this process, each of which does its actions and takes the tensors that a mix-up
/// says.
class MixedPipeline {
 public:
  MixedPipeline(const Wave& wave, const MixUp& mix_up)
      : wave_(wave), mix_up_(mix_up), states_(static_cast<size_t>(wave.stages())) {
    for (int s = 0; s < wave.stages(); ++s)
      models_.emplace_back(wave.training.model, wave.training.span(s), lab::Device::kCpu,
                           wave.training.seed);
  }

  /// The gradients of all stages; none, if the stages wait for each other.
  Numbers run() {
    for (bool any = true; any;) {
      any = false;
      for (size_t s = 0; s < states_.size(); ++s)
        while (states_[s].next < wave_.schedule.stages[s].size() && step(s)) {
          ++states_[s].next;
          any = true;
        }
    }
    Numbers all;
    for (size_t s = 0; s < states_.size(); ++s) {
      if (states_[s].next < wave_.schedule.stages[s].size()) return {};
      const Numbers own =
          lab::grading::to_doubles(lab::grading::packed(models_[s], models_[s].gradients()));
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

 private:
  /// Tensors by microbatch, and the order in which they came.
  struct Shelf {
    std::map<int, Tensor> tensors = {};
    std::vector<int> order = {};

    void put(int k, const Tensor& tensor) {
      tensors[k] = tensor;
      order.push_back(k);
    }
  };
  struct State {
    size_t next = 0;
    Shelf outputs = {};
    Shelf input_gradients = {};
    std::map<int, Tensor> mail[2] = {};  // activations and gradients that were sent to this stage
    std::vector<int> recvs[2] = {};      // begun, and not read, in their order
  };

  int picked(Pick pick, int k, const std::vector<int>& order) const {
    const int m = wave_.schedule.microbatches;
    switch (pick) {
      case Pick::kOwn:
        return k;
      case Pick::kOldest:
        return order.front();
      case Pick::kNewest:
        return order.back();
      case Pick::kReversed:
        return m - 1 - k;
      case Pick::kNext:
        return (k + 1) % m;
      case Pick::kPrevious:
        return (k + m - 1) % m;
    }
    return k;
  }

  /// What pass k reads of what was received; nothing, if it is not there yet.
  std::optional<Tensor> received(State& state, bool gradient, int k) {
    std::vector<int>& recvs = state.recvs[gradient ? 1 : 0];
    const Pick pick = gradient ? mix_up_.gradient : mix_up_.activation;
    const int from = picked(pick, k, recvs);
    const auto found = state.mail[gradient ? 1 : 0].find(from);
    if (found == state.mail[gradient ? 1 : 0].end()) return std::nullopt;
    if (pick == Pick::kOldest) recvs.erase(recvs.begin());
    return found->second.clone();
  }

  /// Does the next action of a stage, if it can.
  bool step(size_t s) {
    State& state = states_[s];
    const Action action = wave_.schedule.stages[s][state.next];
    const int k = action.microbatch;
    switch (action.kind) {
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient:
        state.recvs[action.kind == ActionKind::kRecvGradient ? 1 : 0].push_back(k);
        return true;
      case ActionKind::kForward:
        return forward(s, state, k);
      case ActionKind::kBackward:
        return backward(s, state, k);
      case ActionKind::kSendActivation:
        return send(state.outputs, mix_up_.output, k, states_[s + 1].mail[0]);
      case ActionKind::kSendGradient:
        return send(state.input_gradients, mix_up_.input_gradient, k, states_[s - 1].mail[1]);
    }
    return false;
  }

  bool forward(size_t s, State& state, int k) {
    const TokenBatch& batch = wave_.microbatches()[static_cast<size_t>(k)];
    if (s == 0) {
      state.outputs.put(k, models_[s].forward(batch, k));
    } else {
      const std::optional<Tensor> input = received(state, false, k);
      if (!input) return false;
      state.outputs.put(k, models_[s].forward(*input, k));
    }
    if (s + 1 == states_.size())
      lab::grading::reference_loss(state.outputs.tensors[k], batch,
                                   static_cast<int64_t>(wave_.total));
    return true;
  }

  bool backward(size_t s, State& state, int k) {
    std::optional<Tensor> gradient;
    if (s + 1 < states_.size()) {
      gradient = received(state, true, k);
    } else {
      const auto found = state.outputs.tensors.find(picked(mix_up_.logits, k, state.outputs.order));
      if (found != state.outputs.tensors.end()) gradient = found->second.clone();
    }
    if (!gradient) return false;
    state.input_gradients.put(k, models_[s].backward(*gradient, k));
    return true;
  }

  bool send(const Shelf& shelf, Pick pick, int k, std::map<int, Tensor>& mail) {
    const auto found = shelf.tensors.find(picked(pick, k, shelf.order));
    if (found == shelf.tensors.end()) return false;
    mail[k] = found->second.clone();
    return true;
  }

  const Wave& wave_;
  const MixUp& mix_up_;
  std::vector<State> states_;
  std::vector<lab::LlamaStage> models_;
};

/// Microbatches of different shapes cannot be mixed up.
bool are_alike(const std::vector<TokenBatch>& batches) {
  return std::ranges::all_of(batches, [&](const TokenBatch& batch) {
    return batch.batch == batches[0].batch && batch.length == batches[0].length;
  });
}

/// A mistake, and the gradients of the whole model that it gives.
struct Hypothesis {
  std::string message;
  Numbers gradient;
};

std::vector<Hypothesis> hypotheses(const WaveRun& run) {
  const Numbers right = run.parts.combine([&](const MicrobatchPart&) { return run.share(); });
  std::vector<Hypothesis> all;
  Numbers without = right;
  for (double& g : without) g -= double{run.wave.training.leftover};
  all.push_back(
      {"the gradients that were there before are gone: run_actions adds to them, since a "
       "step may have several waves",
       without});
  const std::string what = "the gradients: ";
  for (const Weighing& weighing : wrong_weighings(run))
    all.push_back({what + weighing.message, run.parts.combine(weighing.weight)});
  const int last = run.wave.stages() - 1;
  for (const auto& [from, to, before] :
       {std::tuple(0, last, false), std::tuple(0, last, true), std::tuple(1, last - 1, false),
        std::tuple(1, last - 1, true), std::tuple(0, last - 1, true)})
    all.push_back({what + "every stage divides what it passes on by the number of microbatches: "
                          "the loss has done that for all of them",
                   divided_on_the_way(run, from, to, before)});
  if (are_alike(run.wave.microbatches()))
    for (const MixUp& mix_up : mix_ups())
      if (Numbers mixed = MixedPipeline(run.wave, mix_up).run(); !mixed.empty())
        all.push_back({what + mix_up.message, std::move(mixed)});
  return all;
}

Numbers part_of(const WaveRun& run, const Hypothesis& hypothesis, int stage) {
  return run.with_leftover(run.oracle.of_stage(hypothesis.gradient, stage));
}

/// Whether it gives just what all stages got. On a single one, one mistake may look like another.
bool explains_all_stages(const WaveRun& run, const Hypothesis& hypothesis) {
  for (int s = 0; s < run.wave.stages(); ++s) {
    const Numbers values = part_of(run, hypothesis, s);
    const double largest = lab::grading::largest_magnitude(values);
    const Numbers got =
        lab::grading::to_doubles(run.stages[static_cast<size_t>(s)].tensor("gradients"));
    if (!lab::grading::difference(
             got, {.what = "",
                   .values = values,
                   .tolerance = lab::grading::relative_tolerance(values, 1e-4, 0.01 * largest)})
             .empty())
      return false;
  }
  return true;
}

}  // namespace

std::vector<Mistake> gradient_mistakes(const WaveRun& run, int stage) {
  std::vector<Hypothesis> all = hypotheses(run);
  std::vector<Hypothesis> likely = all;
  std::erase_if(likely, [&](const Hypothesis& each) { return !explains_all_stages(run, each); });
  std::vector<Mistake> mistakes;
  for (const Hypothesis& each : likely.empty() ? all : likely)
    mistakes.push_back({part_of(run, each, stage), each.message});
  return mistakes;
}

std::vector<Mistake> loss_mistakes(const WaveRun& run) {
  std::vector<Mistake> mistakes;
  for (const Weighing& weighing : wrong_weighings(run))
    mistakes.push_back(
        {{run.parts.combine_losses(weighing.weight)}, "the returned loss: " + weighing.message});
  return mistakes;
}

std::vector<Weighing> wave_weighings(size_t m, const lab::grading::StepParts& step) {
  std::vector<double> targets(step.microbatches.size() / m, 0.0);  // of each wave
  for (const MicrobatchPart& b : step.microbatches) targets[b.number / m] += b.targets;
  const auto waves = static_cast<double>(targets.size());
  const double total = step.targets;
  double rows = 0;
  for (const MicrobatchPart& b : step.microbatches) rows += b.sequences;
  const std::vector<Weighing> always = {
      {"all tokens but one per row are counted as targets: the last stage need not have the first "
       "token of a row, and a row may be empty; TokenBatch::target_count() counts right",
       [=](const MicrobatchPart&) { return 1 / (total - rows); }}};
  if (targets.size() < 2) return always;
  const size_t last = targets.size() - 1;
  const auto of_wave = [=](const MicrobatchPart& b) {
    return targets[b.number / m] > 0 ? 1 / targets[b.number / m] : 0.0;
  };
  const auto only = [=](size_t wave, double weight) {
    return [=](const MicrobatchPart& b) { return b.number / m == wave ? weight : 0.0; };
  };
  const std::string zero =
      ": zero the gradients once, before the first wave, and add up the losses of all";
  const std::string next = ": run the schedule once per wave, on the next microbatches";
  std::vector<Weighing> weighings = {
      {"only the last wave arrived" + zero, only(last, 1 / total)},
      {"only the last wave arrived, as if it were the whole step" + zero,
       only(last, targets[last] > 0 ? 1 / targets[last] : 0)},
      {"only the first wave arrived" + next, only(0, 1 / total)},
      {"only the first wave arrived, as if it were the whole step" + next,
       only(0, targets[0] > 0 ? 1 / targets[0] : 0)},
      {"every wave is divided by its own targets, and the means are added up: all targets of the "
       "step count the same, divide by those of all waves",
       of_wave},
      {"a mean of the waves' means: all targets of the step count the same, divide by those of all "
       "waves",
       [=](const MicrobatchPart& b) { return of_wave(b) / waves; }},
      {"every wave is counted as if it had as many targets as the first: count those of all",
       [=](const MicrobatchPart&) { return targets[0] > 0 ? 1 / targets[0] / waves : 0.0; }},
      {"divided by the number of waves on top of the number of targets: averaged twice",
       [=](const MicrobatchPart&) { return 1 / total / waves; }},
      {"divided by the schedule's number of microbatches on top of the number of targets: averaged "
       "twice",
       [=](const MicrobatchPart&) { return 1 / total / static_cast<double>(m); }},
  };
  weighings.push_back(always[0]);
  return weighings;
}

}  // namespace lab05
