#include "tests/labs/08_overlap/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

namespace lab08 {

using lab::grading::Call;
using lab::grading::JobOptions;

size_t StepsCase::bytes_of(size_t bucket) const {
  size_t elements = 0;
  for (size_t p : buckets[bucket]) elements += sizes[p];
  return elements * sizeof(float);
}

double StepsCase::all_reduce_seconds(size_t bytes) const {
  const auto n = static_cast<double>(ranks);
  return 2 * (n - 1) * (alpha + beta * static_cast<double>(bytes) / n);
}

bool StepsCase::is_complete(size_t step, size_t rank) const {
  return steps[step].orders[rank].size() == sizes.size();
}

size_t StepsCase::due(size_t step, size_t rank, size_t count) const {
  const auto& order = steps[step].orders[rank];
  const std::set<size_t> ready(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  const auto is_complete = [&](const std::vector<size_t>& bucket) {
    return std::ranges::all_of(bucket, [&](size_t p) { return ready.contains(p); });
  };
  return static_cast<size_t>(std::ranges::find_if_not(buckets, is_complete) - buckets.begin());
}

namespace {

std::vector<Parcel> inputs_of(const StepsCase& c, bool timed) {
  std::vector<Parcel> inputs(c.ranks);
  Numbers flat;
  for (const auto& bucket : c.buckets) {
    flat.push_back(static_cast<double>(bucket.size()));
    flat.insert(flat.end(), bucket.begin(), bucket.end());
  }
  for (size_t r = 0; r < c.ranks; ++r) {
    inputs[r].set("sizes", Numbers(c.sizes.begin(), c.sizes.end()));
    inputs[r].set("buckets", flat);
    inputs[r].set("steps", static_cast<double>(c.steps.size()));
    if (timed) inputs[r].set("timed", 1.0);
    if (c.two_models) inputs[r].set("two_models", 1.0);
    if (c.again) inputs[r].set("again", 1.0);
    if (c.abandoned) inputs[r].set("abandoned", 1.0);
    for (size_t s = 0; s < c.steps.size(); ++s) {
      const auto entry = [s](const char* what) { return fmt::format("{}.{}", what, s); };
      const Step& step = c.steps[s];
      inputs[r].set(entry("values"), step.values[r]);
      inputs[r].set(entry("targets"), step.targets[r]);
      inputs[r].set(entry("order"), Numbers(step.orders[r].begin(), step.orders[r].end()));
      inputs[r].set(entry("seconds"), step.seconds[r]);
    }
  }
  return inputs;
}

JobOptions options_of(const StepsCase& c, Wires wires, const std::string& given) {
  if (wires == Wires::kGloo) return {.given = {given}};
  if (wires == Wires::kLate) return lab::grading::late_messages(21, {given});
  return {.network = lab::grading::Network::kSimulated,
          .given = {given},
          .simulation = {.ranks = static_cast<int>(c.ranks),
                         .costs = lab::CostModel{.inside = {.alpha = c.alpha, .beta = c.beta}}}};
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  size_t below(size_t limit) { return random_() % limit; }

  std::vector<size_t> last_to_first(size_t count) {
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = count - 1 - i;
    return order;
  }
  std::vector<size_t> any_order(size_t count) {
    std::vector<size_t> order = last_to_first(count);
    for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
    return order;
  }

  Step step(const StepsCase& c) {
    Step result;
    const size_t elements = std::accumulate(c.sizes.begin(), c.sizes.end(), size_t{0});
    for (size_t r = 0; r < c.ranks; ++r) {
      Numbers values;
      for (size_t i = 0; i < elements; ++i)
        values.push_back((static_cast<double>(below(2001)) - 1000) / 500);
      result.values.push_back(values);
      result.targets.push_back(static_cast<double>(1 + below(40)));
      result.orders.push_back(last_to_first(c.sizes.size()));
      Numbers seconds;
      for (size_t p = 0; p < c.sizes.size(); ++p)
        seconds.push_back(1e-3 * static_cast<double>(1 + below(9)));
      result.seconds.push_back(seconds);
    }
    return result;
  }

  /// `per_bucket`: parameters, from the last one on; 0: a random number.
  StepsCase plain(const std::string& name, size_t ranks, size_t parameters, size_t per_bucket,
                  size_t steps = 2) {
    StepsCase c{.name = name, .ranks = ranks, .sizes = {}, .buckets = {}};
    for (size_t p = 0; p < parameters; ++p) c.sizes.push_back(3 + below(60));
    size_t left = parameters;
    while (left > 0) {
      const size_t length = std::min(left, per_bucket > 0 ? per_bucket : 1 + below(4));
      auto& bucket = c.buckets.emplace_back();
      for (size_t k = 0; k < length; ++k) bucket.push_back(--left);
    }
    draw_again(c, steps);
    return c;
  }

  /// Steps for sizes that have changed.
  void draw_again(StepsCase& c, size_t steps) {
    c.steps.clear();
    for (size_t s = 0; s < steps; ++s) c.steps.push_back(step(c));
  }

 private:
  std::mt19937_64 random_;
};

constexpr const char* kLooksLate =
    "finish crashes if a gradient was never ready, perhaps in works or flat of a bucket that was "
    "never posted: it must look first whether all gradients are ready";

}  // namespace

std::vector<StepsCase> draw_steps(uint64_t seed) {
  Draw draw(seed);
  std::vector<StepsCase> cases;
  cases.push_back(draw.plain("gradients become ready from the last to the first", 2, 6, 2));

  cases.push_back(draw.plain("rank 1's gradients become ready in another order", 3, 8, 2));
  for (Step& step : cases.back().steps) step.orders[1] = draw.any_order(8);
  // Its first bucket is the last one to be complete.
  std::ranges::reverse(cases.back().steps[1].orders[1]);

  cases.push_back(draw.plain("one rank alone, once without a target", 1, 6, 0));
  cases.back().steps[1].targets = {0};

  cases.push_back(draw.plain("on every rank in another order", 4, 11, 0, 5));
  for (Step& step : cases.back().steps)
    for (auto& order : step.orders) order = draw.any_order(11);
  std::ranges::sort(cases.back().steps[1].orders[2]);  // from the first parameter to the last

  cases.push_back(draw.plain("every gradient in a bucket of its own", 3, 6, 1));
  cases.back().steps[1].targets = {1, 1, 1};
  // As many parameters, in other buckets.
  cases.push_back(draw.plain("buckets whose gradients lie in another order", 3, 6, 3));
  for (auto& bucket : cases.back().buckets) std::ranges::sort(bucket);
  cases.push_back(draw.plain("all gradients in one bucket", 3, 5, 5));

  // What a gradient holds on a rank without targets counts 0 times.
  cases.push_back(draw.plain("a rank has no target, then two, then all", 3, 6, 0, 4));
  cases.back().steps[1].targets[1] = 0;
  cases.back().steps[2].targets = {1, 0, 0};
  std::ranges::fill(cases.back().steps[3].targets, 0.0);

  cases.push_back(draw.plain("the step before ended with an error", 3, 6, 2));
  for (auto& order : cases.back().steps[0].orders) std::erase(order, size_t{1});

  cases.push_back(draw.plain("gradients of one element or none", 3, 7, 2));
  for (size_t p : {1, 4, 5}) cases.back().sizes[p] = 0;
  for (size_t p : {0, 3}) cases.back().sizes[p] = 1;
  cases.back().buckets = {{6, 5}, {4}, {3, 2, 1, 0}};
  draw.draw_again(cases.back(), 2);

  cases.push_back(draw.plain("tens of thousands of targets", 3, 6, 3));
  cases.back().steps[0].targets = {5003, 70'001, 3};

  cases.push_back(draw.plain("billions of targets", 3, 6, 3));
  cases.back().steps[1].targets = {3e9, 5, 2e9};

  cases.push_back(draw.plain("two models, each with its Reducer, in turns", 4, 6, 2, 3));
  cases.back().two_models = true;

  cases.push_back(draw.plain("a network much slower than the backward pass", 6, 60, 7));
  cases.back().alpha = 0.02;
  cases.back().beta = 1e-4;
  cases.push_back(draw.plain("a model of one parameter", 2, 1, 1));
  cases.push_back(draw.plain("messages of a step that ended with an error still travel", 5, 6, 2));
  cases.back().abandoned = true;
  return cases;
}

void expect_steps(const std::vector<StepsCase>& cases, Wires wires, const std::string& given,
                  const JudgeSteps& judge) {
  std::vector<std::vector<StepsCase>> jobs;
  for (const StepsCase& c : cases) {
    const auto is_like = [&](const std::vector<StepsCase>& job) {
      return std::tie(job[0].ranks, job[0].alpha, job[0].beta) ==
             std::tie(c.ranks, c.alpha, c.beta);
    };
    auto job = std::ranges::find_if(jobs, is_like);
    if (job == jobs.end())
      jobs.push_back({c});
    else
      job->push_back(c);
  }
  const bool timed = wires == Wires::kCosts;
  for (const std::vector<StepsCase>& job : jobs) {
    std::vector<Call> calls;
    for (const StepsCase& c : job) {
      const bool ends_incomplete = !c.is_complete(c.steps.size() - 1, 0);
      calls.push_back({.scenario = "steps",
                       .inputs = inputs_of(c, timed),
                       .name = c.name,
                       .if_it_crashes = given == "2" && ends_incomplete ? kLooksLate : ""});
    }
    JobOptions options = options_of(job[0], wires, given);
    options.explain = [&](size_t k, const std::vector<Parcel>& ranks,
                          const std::string& diagnosis) {
      if (given == "2" && !job[k].is_complete(0, 0))
        return "finish waits for messages, or sends some, although a gradient was never ready; it "
               "must throw lab::Error on every rank, with or without targets\n" +
               diagnosis;
      return explain_deadlock(job[k], ranks, diagnosis);
    };
    judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
      if (judge) return judge(job[k], ranks);
      expect_posts(job[k], ranks);
      expect_means(job[k], ranks);
      // Elsewhere the abandoned messages take the network's time, too.
      if (timed && !job[k].abandoned) expect_exposed(job[k], ranks);
    });
  }
}

}  // namespace lab08
