// The rank program of lab 08: the contract's functions, and the scenarios that call them.
#include <fmt/format.h>

#include <map>
#include <string>

#include "common/error.h"
#include "common/todo.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/training_rank.h"
#include "tests/labs/08_overlap/rank_correct.h"

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab08 {

// The contract's functions.

std::vector<Bucket> assign_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                   int64_t first_cap_bytes) {
  if (is_given("1")) return given_1::assign_buckets(sizes, cap_bytes, first_cap_bytes);
  return own(&assign_buckets)(sizes, cap_bytes, first_cap_bytes);
}

void begin(Reducer& reducer, int64_t targets) {
  if (is_given("2")) return given_2::begin(reducer, targets);
  own (&begin)(reducer, targets);
}

namespace {
thread_local bool step_is_over = false;
}

void ready(Reducer& reducer, size_t parameter) {
  lab::require(!step_is_over,
               "a backward pass after the step still calls ready: empty when_gradient_ready before "
               "train_step returns");
  if (is_given("2"))
    given_2::ready(reducer, parameter);
  else
    own (&ready)(reducer, parameter);
  lab::grading::record_event(fmt::format("ready:{}:{}", parameter, reducer.works.size()));
}

void finish(Reducer& reducer) {
  lab::grading::record_event("finish");
  if (is_given("3")) return given_3::finish(reducer);
  own (&finish)(reducer);
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Reducer& reducer) {
  return own(&train_step)(model, optimizer, microbatches, loss, learning_rate, max_gradient_norm,
                          reducer);
}

double exposed_seconds(std::span<const int64_t> sizes, std::span<const double> ready_at,
                       std::span<const Bucket> buckets, const Network& network) {
  return own(&exposed_seconds)(sizes, ready_at, buckets, network);
}

int64_t choose_cap(std::span<const int64_t> sizes, std::span<const double> ready_at,
                   std::span<const int64_t> caps, const Network& network) {
  return own(&choose_cap)(sizes, ready_at, caps, network);
}

namespace {

std::vector<int64_t> whole(const std::vector<double>& numbers) {
  return {numbers.begin(), numbers.end()};
}

/// Each bucket with its length before it.
std::vector<double> flattened(const std::vector<Bucket>& buckets) {
  std::vector<double> numbers;
  for (const Bucket& bucket : buckets) {
    numbers.push_back(static_cast<double>(bucket.size()));
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
  }
  return numbers;
}

std::vector<Bucket> unflattened(const std::vector<double>& numbers) {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < numbers.size();) {
    const auto length = static_cast<size_t>(numbers[i++]);
    Bucket& bucket = buckets.emplace_back();
    for (size_t k = 0; k < length; ++k) bucket.push_back(static_cast<size_t>(numbers[i++]));
  }
  return buckets;
}

/// What a call threw; "" if it returned.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::Error& error) {
    const std::string text = error.what();
    return text.empty() ? "an error without a message" : text;
  }
  return "";
}

double time_of(const ProcessGroup& world) {
  return 1e-9 * static_cast<double>(world.recorder().snapshot().taken_ns);
}

/// How many all_reduces this rank has posted so far.
double posted_by(const ProcessGroup& world) {
  const lab::RankSnapshot snapshot = world.recorder().snapshot();
  return static_cast<double>(
      snapshot.traffic[static_cast<size_t>(lab::OpKind::kAllReduce)].operations);
}

/// Task 1.
Parcel run_assign(const Parcel& input) {
  Parcel result;
  result.set("buckets", flattened(assign_buckets(whole(input.numbers("sizes")),
                                                 static_cast<int64_t>(input.number("cap")),
                                                 static_cast<int64_t>(input.number("first_cap")))));
  return result;
}

/// Tasks 2 and 3: steps with made-up gradients, whose computing takes made-up time.
Parcel run_steps(const Parcel& input, ProcessGroup& world) {
  Reducer reducer{
      .world = world, .gradients = {}, .buckets = unflattened(input.numbers("buckets"))};
  for (double size : input.numbers("sizes"))
    reducer.gradients.push_back(Tensor::zeros({static_cast<int64_t>(size)}));
  Parcel result;
  for (int s = 0; s < static_cast<int>(input.number("steps")); ++s) {
    const auto entry = [s](const char* name) { return fmt::format("{}.{}", name, s); };
    const std::vector<double> values = input.numbers(entry("values"));
    const std::vector<double> seconds = input.numbers(entry("seconds"));
    // What a gradient holds before it is ready must not be sent.
    for (const Tensor& gradient : reducer.gradients) gradient.fill(777.0F);
    std::map<size_t, size_t> begins;
    for (size_t p = 0, next = 0; p < reducer.gradients.size(); ++p) {
      begins[p] = next;
      next += static_cast<size_t>(reducer.gradients[p].numel());
    }
    const double before = posted_by(world);
    std::vector<double> posted;
    std::vector<double> ready_times{time_of(world)};
    begin(reducer, static_cast<int64_t>(input.number(entry("targets"))));
    posted.push_back(posted_by(world) - before);
    for (double number : input.numbers(entry("order"))) {
      const auto p = static_cast<size_t>(number);
      world.advance_clock(seconds[p]);
      size_t next = begins[p];
      for (float& value : reducer.gradients[p].values()) value = static_cast<float>(values[next++]);
      const double start = time_of(world);
      ready(reducer, p);
      lab::require(!input.has("timed") || time_of(world) == start,
                   "ready waited for the network: it posts and returns, and finish waits");
      ready_times.push_back(start);
      posted.push_back(posted_by(world) - before);
    }
    if (input.has("again"))
      result.set_text(entry("again"), error_of([&] {
                        ready(reducer, static_cast<size_t>(input.number("again")));
                      }));
    result.set_text(entry("error"), error_of([&] { finish(reducer); }));
    result.set(entry("finished"), time_of(world));
    result.set(entry("posted"), posted);
    result.set(entry("posted_in_all"), posted_by(world) - before);
    result.set(entry("ready"), ready_times);
    std::vector<double> gradients;
    for (const Tensor& gradient : reducer.gradients)
      for (float value : gradient.values()) gradients.push_back(value);
    result.set(entry("gradients"), gradients);
    // A step with an error leaves messages that nobody waits for.
    for (lab::Work& work : reducer.works)
      if (!result.text(entry("error")).empty()) work.wait();
    if (!result.text(entry("error")).empty() && reducer.counting) reducer.counting->wait();
  }
  return result;
}

constexpr int kProbe = 1000;  // no step has so many microbatches

/// Task 4.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  std::optional<Reducer> reducer;
  return lab::grading::record_steps(input, &world, [&](const lab::grading::StepArguments& a) {
    if (!reducer) {
      constexpr int64_t kCap = 600;
      reducer.emplace(make_reducer(a.stage, kCap, kCap / 2, world));
      reducer->is_ready.assign(3, true);  // left over from somewhere else
    }
    a.stage.observe_passes([](lab::LlamaStage::Pass pass, int, bool begins) {
      if (pass == lab::LlamaStage::Pass::kBackward && !step_is_over)
        lab::grading::record_event(begins ? "backward" : "end");
    });
    const double loss =
        train_step(a.stage, a.optimizer, a.microbatches, lab::grading::recorded_loss,
                   a.learning_rate, a.max_norm, *reducer);
    lab::grading::record_event(fmt::format("buckets:{}", reducer->buckets.size()));
    step_is_over = true;
    a.stage.backward(Tensor::zeros(a.stage.forward({1, 2, {1, 2}}, kProbe).shape()), kProbe);
    step_is_over = false;
    return loss;
  });
}

Network network_of(const Parcel& input) {
  return {.alpha = input.number("alpha"),
          .beta = input.number("beta"),
          .ranks = static_cast<int>(input.number("ranks"))};
}

/// Task 5.
Parcel run_exposed(const Parcel& input) {
  Parcel result;
  result.set("exposed", exposed_seconds(whole(input.numbers("sizes")), input.numbers("ready_at"),
                                        unflattened(input.numbers("buckets")), network_of(input)));
  return result;
}

Parcel run_choose(const Parcel& input) {
  Parcel result;
  result.set("cap", static_cast<double>(
                        choose_cap(whole(input.numbers("sizes")), input.numbers("ready_at"),
                                   whole(input.numbers("caps")), network_of(input))));
  return result;
}

}  // namespace
}  // namespace lab08

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"assign", lab08::run_assign},
                 {"exposed", lab08::run_exposed},
                 {"choose", lab08::run_choose}},
       .group = {{"steps", lab08::run_steps}, {"train_step", lab08::run_train_step}}});
}
