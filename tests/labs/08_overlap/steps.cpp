#include "tests/labs/08_overlap/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace lab08 {

using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Operation;
using lab::grading::stop;

size_t StepsCase::bytes_of(size_t bucket) const {
  size_t elements = 0;
  for (size_t p : buckets[bucket]) elements += sizes[p];
  return elements * sizeof(float);
}

double StepsCase::all_reduce_seconds(size_t bytes) const {
  const auto n = static_cast<double>(ranks);
  return 2 * (n - 1) * (alpha + beta * static_cast<double>(bytes) / n);
}

std::vector<Parcel> StepsCase::inputs(bool timed) const {
  std::vector<Parcel> inputs(ranks);
  Numbers flat;
  for (const auto& bucket : buckets) {
    flat.push_back(static_cast<double>(bucket.size()));
    flat.insert(flat.end(), bucket.begin(), bucket.end());
  }
  for (size_t r = 0; r < ranks; ++r) {
    inputs[r].set("sizes", Numbers(sizes.begin(), sizes.end()));
    inputs[r].set("buckets", flat);
    inputs[r].set("steps", static_cast<double>(steps.size()));
    if (timed) inputs[r].set("timed", 1.0);
    for (size_t s = 0; s < steps.size(); ++s) {
      const auto entry = [s](const char* what) { return fmt::format("{}.{}", what, s); };
      inputs[r].set(entry("values"), steps[s].values[r]);
      inputs[r].set(entry("targets"), steps[s].targets[r]);
      inputs[r].set(entry("order"), Numbers(steps[s].orders[r].begin(), steps[s].orders[r].end()));
      inputs[r].set(entry("seconds"), steps[s].seconds[r]);
    }
  }
  return inputs;
}

lab::grading::JobOptions StepsCase::options(std::set<std::string> given) const {
  return {.network = lab::grading::Network::kSimulated,
          .given = std::move(given),
          .simulation = {.ranks = static_cast<int>(ranks),
                         .costs = lab::CostModel{.inside = {.alpha = alpha, .beta = beta}}}};
}

namespace {

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
  StepsCase plain(const std::string& name, size_t ranks, size_t parameters, size_t per_bucket) {
    StepsCase c{.name = name, .ranks = ranks, .sizes = {}, .buckets = {}, .steps = {}};
    for (size_t p = 0; p < parameters; ++p) c.sizes.push_back(3 + below(60));
    size_t left = parameters;
    while (left > 0) {
      const size_t length = std::min(left, per_bucket > 0 ? per_bucket : 1 + below(4));
      auto& bucket = c.buckets.emplace_back();
      for (size_t k = 0; k < length; ++k) bucket.push_back(--left);
    }
    c.steps = {step(c), step(c)};
    return c;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

std::vector<StepsCase> draw_steps(uint64_t seed) {
  Draw draw(seed);
  std::vector<StepsCase> cases;
  cases.push_back(draw.plain("gradients become ready from the last to the first", 2, 6, 2));

  cases.push_back(draw.plain("rank 1's gradients become ready in another order", 3, 8, 2));
  for (Step& step : cases.back().steps) step.orders[1] = draw.any_order(8);
  // Its first bucket is the last one to be complete.
  std::ranges::reverse(cases.back().steps[1].orders[1]);

  cases.push_back(draw.plain("on every rank in another order", 4, 11, 0));
  for (Step& step : cases.back().steps)
    for (auto& order : step.orders) order = draw.any_order(11);
  std::ranges::sort(cases.back().steps[1].orders[2]);  // from the first parameter to the last

  cases.push_back(draw.plain("every gradient in a bucket of its own", 3, 7, 1));
  cases.push_back(draw.plain("all gradients in one bucket", 3, 5, 5));

  cases.push_back(draw.plain("a rank has no target, then no rank has any", 3, 6, 0));
  cases.back().steps[0].targets[1] = 0;
  std::ranges::fill(cases.back().steps[0].values[1], 0.0);
  std::ranges::fill(cases.back().steps[1].targets, 0.0);
  for (Numbers& values : cases.back().steps[1].values) std::ranges::fill(values, 0.0);

  cases.push_back(draw.plain("one rank alone", 1, 6, 0));

  cases.push_back(draw.plain("a network much slower than the backward pass", 5, 9, 2));
  cases.back().alpha = 0.02;
  cases.back().beta = 1e-4;
  cases.push_back(draw.plain("a model of one parameter", 2, 1, 1));
  return cases;
}

void expect_posts(const StepsCase& c, const std::vector<Parcel>& ranks) {
  for (size_t r = 0; r < c.ranks; ++r)
    for (size_t s = 0; s < c.steps.size(); ++s) {
      const Numbers posted = ranks[r].numbers(fmt::format("posted.{}", s));
      const auto& order = c.steps[s].orders[r];
      std::vector<bool> ready(c.sizes.size(), false);
      size_t complete = 0;  // buckets whose turn has come
      for (size_t k = 0; k <= order.size(); ++k) {
        if (k > 0) ready[order[k - 1]] = true;
        const auto is_ready = [&](size_t p) -> bool { return ready[p]; };
        while (complete < c.buckets.size() && std::ranges::all_of(c.buckets[complete], is_ready))
          ++complete;
        const auto got = static_cast<size_t>(posted[k]);
        const std::string where = fmt::format(
            "\nrank {}, step {}, {}: {} of {} all_reduces posted{}", r, s + 1,
            k == 0 ? "after begin"
                   : fmt::format("after gradient {} ({} of {})", order[k - 1], k, order.size()),
            got, complete + 1, got < complete + 1 ? "" : ": that is too many");
        if (k == 0 && got == 0)
          stop(
              "begin has not posted the number of targets: it needs no gradient, so it can travel "
              "during the whole backward pass" +
              where);
        if (got > complete + 1)
          stop(
              "a bucket was posted too early, or twice: it may travel when all its gradients are "
              "ready and all earlier buckets are posted" +
              where);
        if (got < complete + 1)
          stop(
              "a bucket was posted too late: it travels as soon as all its gradients are ready and "
              "all earlier buckets are posted; that may be several at once" +
              where);
      }
      if (ranks[r].numbers(fmt::format("posted_in_all.{}", s))[0] != posted.back())
        stop(fmt::format(
            "finish has sent something: it waits for what was posted\nrank {}, step {}", r, s + 1));
    }
  for (size_t r = 0; r < c.ranks; ++r) {
    const std::vector<Operation> sent = operations_of(ranks[r]);
    const size_t per_step = c.buckets.size() + 1;
    for (size_t i = 0; i < sent.size(); ++i) {
      const size_t b = i % per_step;
      const size_t bytes = b == 0 ? sizeof(float) : c.bytes_of(b - 1);
      if (sent[i].kind != lab::OpKind::kAllReduce || sent[i].bytes != bytes)
        stop(
            fmt::format("a message is not what it should be: the number of targets first, then one "
                        "all_reduce per bucket, in the order of the buckets, of the bucket's "
                        "gradients and nothing else\nrank {}, message {} of a step: {} of {} "
                        "bytes; expected all_reduce of {} bytes",
                        r, b + 1, lab::op_name(sent[i].kind), sent[i].bytes, bytes));
    }
  }
}

namespace {

/// What every rank should have after a step, if each counts with `factor`.
Numbers combined(const Step& step, const Numbers& factor) {
  Numbers sum(step.values[0].size(), 0.0);
  for (size_t r = 0; r < factor.size(); ++r)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor[r] * step.values[r][i];
  return sum;
}

std::vector<Mistake> mistakes(const StepsCase& c, const Step& step, size_t rank) {
  const double total = std::accumulate(step.targets.begin(), step.targets.end(), 0.0);
  if (total == 0) return {};
  const auto n = static_cast<double>(c.ranks);
  Numbers shares = step.targets;
  for (double& share : shares) share /= total;
  const auto scaled = [&](double by) {
    Numbers factors = shares;
    for (double& factor : factors) factor *= by;
    return combined(step, factors);
  };
  Numbers own(c.ranks, 0.0);
  own[rank] = 1;
  std::vector<Mistake> all{
      {combined(step, Numbers(c.ranks, 1.0)), "the means of the ranks are added up, not averaged"},
      {combined(step, Numbers(c.ranks, 1 / n)),
       "a mean of means: each gradient times this rank's targets is summed, then divided by the "
       "targets of all ranks"},
      {combined(step, Numbers(c.ranks, 1 / total)),
       "divided by the targets of all ranks, but not multiplied by this rank's own before sending"},
      {scaled(total), "a sum over all targets: divide by the number of targets of all ranks"},
      {scaled(total / n), "divided by the number of ranks in place of the number of targets"},
      {scaled(total / std::max(1.0, step.targets[rank])),
       "divided by this rank's own targets: wait for the sum of all ranks before you use it"},
      {combined(step, own), "still those of this rank alone: the results were not copied back"}};
  // One bucket keeps what it had; or its parameters have each other's numbers.
  const Numbers right = combined(step, shares);
  for (size_t b = 0; b < c.buckets.size(); ++b) {
    Numbers kept = right;
    for (size_t p : c.buckets[b]) {
      const auto first = static_cast<size_t>(std::accumulate(
          c.sizes.begin(), c.sizes.begin() + static_cast<std::ptrdiff_t>(p), size_t{0}));
      std::copy_n(step.values[rank].begin() + static_cast<std::ptrdiff_t>(first), c.sizes[p],
                  kept.begin() + static_cast<std::ptrdiff_t>(first));
    }
    all.push_back({kept, fmt::format("bucket {} of {} was not copied back: its gradients are still "
                                     "this rank's own",
                                     b, c.buckets.size())});
  }
  return all;
}

}  // namespace

void expect_means(const StepsCase& c, const std::vector<Parcel>& ranks) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    const Step& step = c.steps[s];
    for (size_t r = 0; r < c.ranks; ++r) {
      const std::string error = ranks[r].text(fmt::format("error.{}", s));
      if (!error.empty())
        stop(fmt::format("finish throws although all gradients are ready\nrank {}: {}", r, error));
    }
    const double total = std::accumulate(step.targets.begin(), step.targets.end(), 0.0);
    Numbers shares = step.targets;
    for (double& share : shares) share = total > 0 ? share / total : 0;
    const auto got = numbers_of(ranks, fmt::format("gradients.{}", s));
    lab::grading::expect_on_every_rank(got, [&](size_t rank) {
      return Expected{.what = fmt::format("the gradients after step {}", s + 1),
                      .values = combined(step, shares),
                      .tolerance = {4e-6},
                      .name =
                          [&c](size_t i) {
                            size_t p = 0;
                            while (i >= c.sizes[p]) i -= c.sizes[p++];
                            return fmt::format("parameter {}, element {}", p, i);
                          },
                      .mistakes = [&c, &step, rank] { return mistakes(c, step, rank); },
                      .if_not_finite = "the gradients: not a number: 0 targets divided by 0?"};
    });
    lab::grading::expect_same_bits(got, "the averaged gradients");
  }
}

void expect_exposed(const StepsCase& c, const std::vector<Parcel>& ranks) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    std::vector<Numbers> ready;
    for (const Parcel& rank : ranks) ready.push_back(rank.numbers(fmt::format("ready.{}", s)));
    double arrived = 0;  // the network is free again
    double posted = 0;
    const auto send = [&](size_t bytes) {
      arrived = std::max(arrived, posted) + (c.ranks > 1 ? c.all_reduce_seconds(bytes) : 0.0);
    };
    for (const Numbers& times : ready) posted = std::max(posted, times[0]);
    send(sizeof(float));
    for (size_t b = 0; b < c.buckets.size(); ++b) {
      for (size_t r = 0; r < c.ranks; ++r)
        for (size_t k = 0; k < c.steps[s].orders[r].size(); ++k)
          if (std::ranges::count(c.buckets[b], c.steps[s].orders[r][k]) > 0)
            posted = std::max(posted, ready[r][k + 1]);
      send(c.bytes_of(b));
    }
    for (size_t r = 0; r < c.ranks; ++r) {
      const double last = ready[r].back();
      const double exposed = ranks[r].numbers(fmt::format("finished.{}", s))[0] - last;
      const double least = std::max(0.0, arrived - last);
      if (std::abs(exposed - least) > 1e-6)
        stop(fmt::format(
            "a rank waits {} than the network needs: every bucket travels as soon as it can, and "
            "finish waits for all of them\nrank {}, step {}: {:.3f} ms after its last gradient; "
            "the "
            "last bucket arrives after {:.3f} ms",
            exposed > least ? "longer" : "less", r, s + 1, 1e3 * exposed, 1e3 * least));
    }
  }
}

}  // namespace lab08
