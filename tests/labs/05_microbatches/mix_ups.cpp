// A pipeline in this process whose stages take the wrong microbatch's tensors.
#include "tests/labs/05_microbatches/mix_ups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tests/grading/reference.h"
#include "tests/grading/training_rank.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Numbers;

namespace {

/// Which microbatch's tensor is taken instead of microbatch k's.
enum class Pick { kOwn, kOldest, kNewest, kReversed, kNext, kPrevious };

/// Stages that mix up microbatches: which received tensors their forwards and backwards read, what
/// they send, and with whose logits the last stage begins its backwards.
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
      {.message = "a send carries the output of the newest forward, not that of its own "
                  "microbatch: keep each output until it has been sent",
       .output = Pick::kNewest},
      {.message = "a send carries the gradient of the newest backward, not that of its own "
                  "microbatch: keep each gradient until it has been sent",
       .input_gradient = Pick::kNewest},
      {.message = forward + ", that of the oldest recv: a pass must read what was received for "
                            "its own microbatch",
       .activation = Pick::kOldest},
      {.message = backward + ", that of the oldest recv: a pass must read what was received for "
                             "its own microbatch",
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

  /// The received tensor that pass k reads; nothing if it has not arrived yet.
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

bool are_alike(const std::vector<TokenBatch>& batches) {
  return std::ranges::all_of(batches, [&](const TokenBatch& batch) {
    return batch.batch == batches[0].batch && batch.length == batches[0].length;
  });
}

}  // namespace

std::vector<Hypothesis> mixed_up(const Wave& wave) {
  std::vector<Hypothesis> all;
  if (!are_alike(wave.microbatches())) return all;
  for (const MixUp& mix_up : mix_ups())
    if (Numbers mixed = MixedPipeline(wave, mix_up).run(); !mixed.empty())
      all.push_back({mix_up.message, std::move(mixed)});
  return all;
}

}  // namespace lab05
