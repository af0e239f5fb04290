// The rank program of lab 08: the contract's functions, and the scenarios that call them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/error.h"
#include "common/todo.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/training_rank.h"
#include "tests/labs/08_overlap/made_up.h"
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

namespace {

thread_local bool outside_of_steps = false;
thread_local bool has_begun = false;  // and not finished

}  // namespace

void begin(Reducer& reducer, int64_t targets) {
  has_begun = true;
  lab::grading::record_event(fmt::format("begin:{}", targets));
  if (is_given("2")) return given_2::begin(reducer, targets);
  own (&begin)(reducer, targets);
}

namespace {

/// A step that waits for a message before finish computes nothing meanwhile.
void require_under_way(const Reducer& reducer) {
  if (reducer.world.size() == 1) return;  // where nothing travels
  const size_t posted = reducer.works.size() + (reducer.counting ? 1 : 0);
  const size_t pending = reducer.world.recorder().snapshot().pending.size();
  lab::require(
      pending >= posted,
      "train_step has waited for {} of its {} messages before finish, and computed nothing "
      "meanwhile: only post them, and leave the waiting to finish",
      posted - pending, posted);
}

}  // namespace

void ready(Reducer& reducer, size_t parameter) {
  lab::require(!outside_of_steps,
               "a backward pass after the step still calls ready: empty when_gradient_ready before "
               "train_step returns");
  if (is_given("2"))
    given_2::ready(reducer, parameter);
  else
    own (&ready)(reducer, parameter);
  lab::grading::record_event(fmt::format("ready:{}:{}", parameter, reducer.works.size()));
}

void finish(Reducer& reducer) {
  has_begun = false;
  lab::grading::record_event("finish");
  if (is_given("2") && is_given("3")) require_under_way(reducer);
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

/// All members of a step have their values, whatever they held.
void require_begun(const Reducer& reducer, int64_t targets) {
  std::vector<size_t> missing;
  for (const Bucket& bucket : reducer.buckets) missing.push_back(bucket.size());
  lab::require(reducer.targets == targets,
               "begin leaves {} in targets; it must be this rank's number, {}", reducer.targets,
               targets);
  lab::require(reducer.is_ready == std::vector<bool>(reducer.gradients.size(), false),
               "after begin, is_ready must be {} times false", reducer.gradients.size());
  lab::require(
      reducer.missing == missing,
      "begin leaves [{}] in missing; it must be the number of gradients of each bucket, [{}]",
      fmt::join(reducer.missing, ", "), fmt::join(missing, ", "));
  lab::require(reducer.flat.empty() && reducer.works.empty(),
               "begin leaves {} tensors in flat and {} in works: no bucket is posted yet",
               reducer.flat.size(), reducer.works.size());
}

/// After `ready`: how many gradients of each bucket are still missing, and what belongs to those
/// that travel.
void require_counted(const Reducer& reducer) {
  std::vector<size_t> missing;
  for (const Bucket& bucket : reducer.buckets)
    missing.push_back(static_cast<size_t>(
        std::ranges::count_if(bucket, [&](size_t p) { return !reducer.is_ready[p]; })));
  lab::require(reducer.missing == missing,
               "ready leaves [{}] in missing; it must be the number of gradients of each bucket "
               "that are not ready yet, [{}]",
               fmt::join(reducer.missing, ", "), fmt::join(missing, ", "));
  lab::require(reducer.flat.size() == reducer.works.size(),
               "ready leaves {} tensors in flat and {} in works: finish needs both of every bucket "
               "that has been posted",
               reducer.flat.size(), reducer.works.size());
}

/// Tasks 2 and 3: steps with made-up gradients, whose computing takes made-up time.
Parcel run_steps(const Parcel& input, ProcessGroup& world) {
  MadeUp made_up(input, world);
  Reducer& reducer = made_up.reducer;
  std::optional<OtherModel> other;
  if (input.has("two_models")) other.emplace(input, world);
  std::optional<Abandoned> abandoned;
  if (input.has("abandoned")) abandoned.emplace(input, world);
  if (abandoned && world.rank() == 0) {
    abandoned->post();
    abandoned->hand_over(reducer);
  }
  Parcel result;
  for (int s = 0; s < static_cast<int>(input.number("steps")); ++s) {
    const auto entry = [s](const char* name) { return fmt::format("{}.{}", name, s); };
    const std::vector<double> values = input.numbers(entry("values"));
    const std::vector<double> seconds = input.numbers(entry("seconds"));
    const auto targets = static_cast<int64_t>(input.number(entry("targets")));
    double posted = 0;
    const auto count_posts = [&](const char* function, const auto& call) {
      const double before = posted_by(world);
      const double start = time_of(world);
      call();
      posted += posted_by(world) - before;
      lab::require(
          !input.has("timed") || time_of(world) == start,
          "{} waited for the network; it must post and return, and leave the waiting to finish",
          function);
    };
    const std::vector<double> order = input.numbers(entry("order"));

    made_up.leave();
    std::vector<double> posts;
    std::vector<double> ready_times{time_of(world)};
    count_posts("begin", [&] { begin(reducer, targets); });
    std::vector<double> changed = made_up.changed(values, {});
    posts.push_back(posted);
    require_begun(reducer, targets);
    if (abandoned && world.rank() > 0 && s == 0) abandoned->post();
    if (other) other->begin(targets, values);
    for (double number : order) {
      const auto p = static_cast<size_t>(number);
      world.advance_clock(seconds[p]);
      made_up.compute(p, values);
      ready_times.push_back(time_of(world));
      count_posts("ready", [&] { ready(reducer, p); });
      if (input.has("again"))
        for (size_t twice : {p, static_cast<size_t>(order[0])})
          count_posts("ready", [&] {
            lab::require(!error_of("ready", [&] { ready(reducer, twice); }).empty(),
                         "ready accepts a gradient that was ready already in this step; it must "
                         "throw lab::Error (parameter {})",
                         twice);
          });
      posts.push_back(posted);
      if (!lab::grading::is_given("2") && !input.has("again")) require_counted(reducer);
      if (other) other->ready(p);
    }
    if (changed.empty()) changed = made_up.changed(values, order);
    if (other) other->finish(s, result);
    const double before = posted_by(world);
    const std::string error = error_of("finish", [&] { finish(reducer); });
    result.set_text(entry("error"), error);
    result.set(entry("finished"), time_of(world));
    result.set(entry("posted"), posts);
    result.set(entry("posted_in_all"), posted + posted_by(world) - before);
    result.set(entry("ready"), ready_times);
    result.set(entry("changed"), changed);
    result.set(entry("gradients"), made_up.numbers());
    if (!error.empty()) made_up.wait_for_the_rest();
  }
  return result;
}

constexpr int kProbe = 1000;  // no step has so many microbatches

/// A backward pass that belongs to no step. Its gradients remain, among them a tied head's
/// own.
void pass_outside(lab::LlamaStage& stage, float output_gradient) {
  outside_of_steps = true;
  const Tensor gradient = Tensor::empty(stage.forward({1, 2, {1, 2}}, kProbe).shape());
  gradient.fill(output_gradient);
  stage.backward(gradient, kProbe);
  outside_of_steps = false;
}

/// Task 4. Two Reducers take turns.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  std::vector<Reducer> reducers;
  return lab::grading::record_steps(input, &world, [&](const lab::grading::StepArguments& a) {
    if (reducers.empty())
      for (const int64_t cap : {600, 900}) {
        reducers.push_back(make_reducer(a.stage, cap, 300, world));
        reducers.back().is_ready.assign(3, true);  // left over from somewhere else
      }
    Reducer& reducer = reducers[static_cast<size_t>(a.step) % reducers.size()];
    const bool tied = a.stage.config().tied_head;
    if (tied) pass_outside(a.stage, 1.0F);
    bool is_first = tied;  // elsewhere the gradients of the step tell
    lab::grading::Passes passes;
    a.stage.observe_passes([&](lab::LlamaStage::Pass pass, int, bool begins) {
      if (outside_of_steps) return;
      passes.note(a.stage, pass, begins);
      if (pass == lab::LlamaStage::Pass::kBackward) {
        lab::grading::record_event(begins ? "backward" : "end");
        lab::require(
            !is_first || std::ranges::all_of(a.stage.gradients().values(),
                                             [](float g) { return g == 0.0F; }),
            "the first backward pass of a step begins with gradients that are not 0: "
            "model.zero_gradients clears all of them, including the separate one of a tied head");
        is_first = false;
      }
      if (pass == lab::LlamaStage::Pass::kForward && begins) lab::grading::record_event("forward");
    });
    const double loss = train_step(a.stage, a.optimizer, a.microbatches, a.loss, a.learning_rate,
                                   a.max_norm, reducer);
    lab::require(!has_begun,
                 "train_step returns without finish: call it on every rank after the last backward "
                 "pass, since it waits for the messages and makes means of the sums");
    passes.expect_all_backward();
    lab::grading::record_event(fmt::format("buckets:{}", reducer.buckets.size()));
    pass_outside(a.stage, 0.0F);
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
