// Reducers for made-up gradients: of the steps that are judged, of another model in between, and of
// a step that was abandoned.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/todo.h"
#include "labs/08_overlap/overlap.h"
#include "tests/grading/operations.h"
#include "tests/grading/parcel.h"

namespace lab08 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::Parcel;

inline std::vector<Bucket> unflattened(const std::vector<double>& numbers) {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < numbers.size();) {
    const auto length = static_cast<size_t>(numbers[i++]);
    Bucket& bucket = buckets.emplace_back();
    for (size_t k = 0; k < length; ++k) bucket.push_back(static_cast<size_t>(numbers[i++]));
  }
  return buckets;
}

/// The lab::Error that a call threw; "" if it returned.
template <typename Call>
std::string error_of(const char* function, const Call& call) {
  try {
    call();
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::Error& error) {
    const std::string text = error.what();
    return text.empty() ? "an error without a message" : text;
  } catch (const std::exception& error) {
    lab::fail("{} throws an exception that is no lab::Error: {}", function, error.what());
  }
  return "";
}

/// A Reducer for made-up gradients. What it holds before a step must not count.
struct MadeUp {
  Reducer reducer;
  std::vector<Tensor> memory = {};  // of the model: where the means are expected

  MadeUp(const Parcel& input, ProcessGroup& world)
      : reducer{.world = world, .gradients = {}, .buckets = unflattened(input.numbers("buckets"))} {
    for (double size : input.numbers("sizes"))
      memory.push_back(Tensor::zeros({static_cast<int64_t>(size)}));
    reducer.gradients = memory;
    reducer.targets = 77;
    reducer.is_ready.assign(memory.size(), true);
    reducer.missing.assign(reducer.buckets.size(), 1);
  }

  static constexpr float kLeftover = 777.0F;
  void leave() const {
    for (const Tensor& gradient : memory) gradient.fill(kLeftover);
  }
  /// Writes parameter `p`'s part of `values`, which are those of all.
  void compute(size_t p, const std::vector<double>& values, double factor = 1) const {
    size_t next = 0;
    for (size_t before = 0; before < p; ++before)
      next += static_cast<size_t>(memory[before].numel());
    for (float& value : memory[p].values()) value = static_cast<float>(factor * values[next++]);
  }
  /// Parameters that have changed: those in `computed` should hold what was computed, the others
  /// what leave() wrote.
  std::vector<double> changed(const std::vector<double>& values,
                              const std::vector<double>& computed) const {
    std::vector<double> changed;
    size_t next = 0;
    for (size_t p = 0; p < memory.size(); ++p) {
      const bool is_computed = std::ranges::count(computed, static_cast<double>(p)) > 0;
      bool same = true;
      for (float value : memory[p].values()) {
        same = same && value == (is_computed ? static_cast<float>(values[next]) : kLeftover);
        ++next;
      }
      if (!same) changed.push_back(static_cast<double>(p));
    }
    return changed;
  }
  std::vector<double> numbers() const {
    std::vector<double> numbers;
    for (const Tensor& gradient : memory)
      for (float value : gradient.values()) numbers.push_back(value);
    return numbers;
  }
  /// A step with an error leaves messages that the caller waits for.
  void wait_for_the_rest() {
    for (lab::Work& work : reducer.works) work.wait();
    if (reducer.counting) reducer.counting->wait();
  }
};

/// Steps of another model, in between: this rank is the only one of its group.
class OtherModel {
 public:
  OtherModel(const Parcel& input, ProcessGroup& world)
      : alone_(world.split(world.rank(), 0, "another model")), made_up_(input, alone_) {}

  void begin(int64_t targets, const std::vector<double>& values) {
    values_ = values;
    made_up_.leave();
    lab08::begin(made_up_.reducer, targets + 5);
  }
  void ready(size_t p) {
    made_up_.compute(p, values_, kFactor);
    lab08::ready(made_up_.reducer, p);
  }
  void finish(int step, Parcel& result) {
    const std::string error = error_of("finish", [&] { lab08::finish(made_up_.reducer); });
    if (!error.empty()) made_up_.wait_for_the_rest();
    double off = 0;
    const std::vector<double> got = made_up_.numbers();
    for (size_t i = 0; i < got.size(); ++i)
      off = std::max(off, std::abs(got[i] - kFactor * values_[i]));
    result.set_text(fmt::format("other_error.{}", step), error);
    result.set(fmt::format("other_off.{}", step), off);
  }

 private:
  static constexpr double kFactor = -3;
  ProcessGroup alone_;
  MadeUp made_up_;
  std::vector<double> values_;
};

/// A step that ended with an error after all of its buckets were posted. Rank 0 is so much faster
/// that it begins the next step before the others have posted theirs.
class Abandoned {
 public:
  Abandoned(const Parcel& input, ProcessGroup& world)
      : world_(world.split(0, world.rank(), lab::grading::kAbandoned)), made_up_(input, world_) {}

  void post() {
    made_up_.leave();
    begin(made_up_.reducer, 1000);
    for (size_t p = made_up_.memory.size(); p-- > 0;) ready(made_up_.reducer, p);
  }
  /// Leaves in `reducer` what the step has left.
  void hand_over(Reducer& reducer) {
    Reducer& left = made_up_.reducer;
    reducer.targets = left.targets;
    reducer.total = left.total;
    reducer.is_ready = left.is_ready;
    reducer.missing = left.missing;
    reducer.flat = std::move(left.flat);
    reducer.works = std::move(left.works);
    reducer.counting = std::move(left.counting);
  }

 private:
  ProcessGroup world_;
  MadeUp made_up_;
};

}  // namespace lab08
