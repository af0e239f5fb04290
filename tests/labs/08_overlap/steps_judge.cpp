// What the contract says about steps, and what plausible mistakes would make of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/labs/08_overlap/steps.h"

namespace lab08 {

using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Operation;
using lab::grading::stop;

namespace {

constexpr const char* kTooLate =
    "a bucket was posted too late: post it as soon as all its gradients are ready and all earlier "
    "buckets are posted; several may be due at once";
constexpr const char* kNoTargets =
    "a rank without targets sends nothing: its buckets must travel like all others, with 0 in them";

/// One message of a step: the number of targets, or a bucket.
struct Message {
  size_t step = 0;
  size_t place = 0;  // 0: the number; b + 1: bucket b
  size_t bytes = 0;
};

std::vector<Message> messages_of(const StepsCase& c, size_t rank) {
  std::vector<Message> messages;
  for (size_t s = 0; s < c.steps.size(); ++s) {
    messages.push_back({s, 0, sizeof(float)});
    for (size_t b = 0; b < c.due(s, rank, c.steps[s].orders[rank].size()); ++b)
      messages.push_back({s, b + 1, c.bytes_of(b)});
  }
  return messages;
}

/// What went through the group of all ranks.
std::vector<Operation> sent_by(const Parcel& rank) {
  std::vector<Operation> sent = operations_of(rank);
  std::erase_if(sent, [](const Operation& operation) {
    return operation.group != "world" || operation.kind == lab::OpKind::kSplit;
  });
  return sent;
}

constexpr const char* kTwoModels =
    "two Reducers at a time disturb each other: a step's state belongs in its Reducer; keep "
    "nothing in static or global variables";

/// Reported first if something other than the step itself explains what is wrong.
std::string circumstance(const StepsCase& c) {
  if (c.two_models) return fmt::format("{}\n", kTwoModels);
  return c.again ? "ready has counted or posted something before it throws: check first whether "
                   "the gradient was ready\n"
                 : "";
}

void expect_posts_of_step(const StepsCase& c, const Parcel& rank, size_t r, size_t s) {
  const Numbers posted = rank.numbers(fmt::format("posted.{}", s));
  const auto& order = c.steps[s].orders[r];
  for (size_t k = 0; k <= order.size(); ++k) {
    const size_t right = c.due(s, r, k) + 1;
    const auto got = static_cast<size_t>(posted[k]);
    const std::string where = fmt::format(
        "\nrank {}, step {}, {}: {} of {} all_reduces posted{}", r, s + 1,
        k == 0 ? "after begin"
               : fmt::format("after gradient {} ({} of {})", order[k - 1], k, order.size()),
        got, right, got <= right ? "" : ": that is too many");
    if (k == 0 && got == 0)
      stop(
          "begin has not posted the number of targets: it needs no gradient, so it can travel "
          "during the whole backward pass" +
          where);
    if (got > right)
      stop(circumstance(c) +
           "a bucket was posted too early, or twice: it may travel when all its gradients are "
           "ready and all earlier buckets are posted" +
           where);
    if (got < right)
      stop(circumstance(c) + (c.steps[s].targets[r] > 0 ? kTooLate : kNoTargets) + where);
  }
  if (rank.numbers(fmt::format("posted_in_all.{}", s))[0] != posted.back())
    stop(
        fmt::format("finish has sent something; it must only wait for what was posted\nrank {}, "
                    "step {}",
                    r, s + 1));
  if (const Numbers changed = rank.numbers(fmt::format("changed.{}", s)); !changed.empty())
    stop(fmt::format(
        "begin or ready has changed gradients; they must stay as they are until finish, and a "
        "bucket travels as a copy, which belongs to the network\nrank {}, step {}: parameter {}",
        r, s + 1, fmt::join(changed, ", ")));
}

}  // namespace

void expect_posts(const StepsCase& c, const std::vector<Parcel>& ranks) {
  for (size_t r = 0; r < c.ranks; ++r)
    for (size_t s = 0; s < c.steps.size(); ++s) expect_posts_of_step(c, ranks[r], r, s);
  for (size_t r = 0; r < c.ranks; ++r) {
    const std::vector<Operation> sent = sent_by(ranks[r]);
    const std::vector<Message> right = messages_of(c, r);
    for (size_t i = 0; i < sent.size(); ++i)
      if (i >= right.size() || sent[i].kind != lab::OpKind::kAllReduce ||
          sent[i].bytes != right[i].bytes)
        stop(fmt::format(
            "a message is not what it should be: the number of targets first, then one "
            "all_reduce per bucket, in the order of the buckets, of the bucket's "
            "gradients and nothing else\nrank {}, message {}: {} of {} bytes{}",
            r, i + 1, lab::op_name(sent[i].kind), sent[i].bytes,
            i < right.size() ? fmt::format("; expected all_reduce of {} bytes (step "
                                           "{}, message {})",
                                           right[i].bytes, right[i].step + 1, right[i].place + 1)
                             : ", one too many"));
  }
}

std::string explain_deadlock(const StepsCase& c, const std::vector<Parcel>& ranks,
                             const std::string& diagnosis) {
  if (c.abandoned && sent_by(ranks[0]).empty())
    return "begin waits for messages of a step that ended with an error: they may never arrive\n" +
           diagnosis;
  size_t furthest = 0;  // message that any rank has posted
  for (const Parcel& rank : ranks) furthest = std::max(furthest, sent_by(rank).size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<Operation> sent = sent_by(ranks[r]);
    const std::vector<Message> right = messages_of(c, r);
    const auto is_right = [](const Operation& got, const Message& message) {
      return got.kind == lab::OpKind::kAllReduce && got.bytes == message.bytes;
    };
    const auto first_wrong = std::ranges::mismatch(sent, right, is_right);
    const auto got = first_wrong.in1;
    const auto due = first_wrong.in2;
    if (due == right.end() || due->place == 0) continue;
    const std::string where = fmt::format("\nrank {}, step {}, bucket {} of {} bytes: ", r,
                                          due->step + 1, due->place - 1, due->bytes);
    const auto later = [&](const Message& message) {
      return message.step == due->step && is_right(*got, message);
    };
    if (got != sent.end() && std::any_of(due, right.end(), later))
      return "a bucket was posted before its turn: all earlier buckets come first, so that all "
             "ranks post them in the same order" +
             where + fmt::format("{} bytes were posted in its place\n", got->bytes) + diagnosis;
    if (got != sent.end() || sent.size() < furthest)
      return (c.steps[due->step].targets[r] > 0 ? kTooLate : kNoTargets) + where +
             "never posted\n" + diagnosis;
  }
  return diagnosis;
}

namespace {

/// What every rank should have after a step, if each counts with `factor`.
Numbers combined(const Step& step, const Numbers& factor) {
  Numbers sum(step.values[0].size(), 0.0);
  for (size_t r = 0; r < factor.size(); ++r)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor[r] * step.values[r][i];
  return sum;
}

double total_of(const Step& step) {
  return std::accumulate(step.targets.begin(), step.targets.end(), 0.0);
}

/// Each rank's part of all targets; 0 if there are none.
Numbers shares_of(const Step& step) {
  Numbers shares = step.targets;
  for (double& share : shares) share = total_of(step) > 0 ? share / total_of(step) : 0;
  return shares;
}

std::vector<size_t> ascending(std::vector<size_t> bucket) {
  std::ranges::sort(bucket);
  return bucket;
}

/// Where a parameter's numbers begin.
std::ptrdiff_t first_of(const StepsCase& c, size_t parameter) {
  return static_cast<std::ptrdiff_t>(std::accumulate(
      c.sizes.begin(), c.sizes.begin() + static_cast<std::ptrdiff_t>(parameter), size_t{0}));
}

/// Each bucket's numbers in ascending order of its parameters, read in the order of the bucket; or
/// the other way round.
Numbers reordered(const StepsCase& c, const Numbers& right, bool read_ascending) {
  Numbers all = right;
  for (const auto& bucket : c.buckets) {
    Numbers flat;
    for (size_t p : read_ascending ? bucket : ascending(bucket))
      flat.insert(flat.end(), right.begin() + first_of(c, p),
                  right.begin() + first_of(c, p) + static_cast<std::ptrdiff_t>(c.sizes[p]));
    const double* next = flat.data();
    for (size_t p : read_ascending ? ascending(bucket) : bucket) {
      std::copy_n(next, c.sizes[p], all.begin() + first_of(c, p));
      next += c.sizes[p];
    }
  }
  return all;
}

std::vector<Mistake> mistakes(const StepsCase& c, size_t s, size_t rank) {
  const Step& step = c.steps[s];
  const double total = total_of(step);
  Numbers own(c.ranks, 0.0);
  own[rank] = 1;
  if (total == 0)
    return {{combined(step, own),
             "no rank has a target, so finish must write 0, whatever the gradients held"}};
  const auto n = static_cast<double>(c.ranks);
  const Numbers shares = shares_of(step);
  const Numbers right = combined(step, shares);
  const auto scaled = [&](double by) {
    Numbers numbers = right;
    for (double& number : numbers) number *= by;
    return numbers;
  };
  Numbers sum = right;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += step.values[rank][i];
  Numbers unsent(c.ranks, 0.0);
  unsent[rank] = shares[rank];
  double narrow = 0;  // the total of numbers of targets that were cut to 32 bits
  for (const double targets : step.targets) narrow += static_cast<int32_t>(std::llround(targets));
  std::vector<Mistake> all{
      {combined(step, Numbers(c.ranks, 1.0)), "the means of the ranks are added up, not averaged"},
      {combined(step, Numbers(c.ranks, 1 / n)),
       "a mean of means: each gradient times this rank's targets is summed, then divided by the "
       "targets of all ranks"},
      {combined(step, Numbers(c.ranks, 1 / total)),
       "divided by the targets of all ranks, but not multiplied by this rank's own before sending"},
      {combined(step, Numbers(c.ranks, 1 / n / total)),
       "divided by the number of ranks and by the targets of all, but not multiplied by this "
       "rank's own: a bucket must travel as a sum over targets"},
      {scaled(total), "a sum over all targets: divide by the number of targets of all ranks"},
      {scaled(total / n), "divided by the number of ranks in place of the number of targets"},
      {scaled(1 / n),
       "divided by the number of ranks as well: the number of targets is already that of all "
       "ranks"},
      {scaled(total / std::max(1.0, step.targets[rank])),
       "divided by this rank's own targets: wait for the sum of all ranks before you use it"},
      {scaled(total / std::max(1.0, n * step.targets[rank])),
       "divided by this rank's own targets times the number of ranks: ranks may have different "
       "numbers; wait for their sum, total"},
      {scaled(total / std::ranges::max(step.targets)),
       "divided by the largest number of targets of a rank, not by their sum"},
      {combined(step, unsent),
       step.targets[rank] == 0
           ? "0 on a rank without targets: it must get the mean of all ranks, like every other"
           : "this rank's part of the mean only: read before wait has returned, or never sent"},
      {scaled(total / (narrow != 0 ? narrow : 1)),
       "divided by a number of targets that was cut to 32 bits: targets are int64_t"},
      {sum, "added to what the gradients held, which it must replace"},
      {reordered(c, right, false),
       "gradients do not lie in flat in the order of the bucket: ready must fill it in the order "
       "in which finish reads it"},
      {reordered(c, right, true),
       "finish does not read flat in the order of the bucket, in which ready has filled it"},
      {combined(step, own), "still those of this rank alone: the results were not copied back"}};
  for (size_t earlier = 0; earlier < s; ++earlier)
    if (const double other = total_of(c.steps[earlier]); other > 0) {
      all.push_back({scaled(total / other),
                     "divided by the number of targets of an earlier step: is something kept from "
                     "one step to the next?"});
      all.push_back({scaled(total / n / other),
                     "total still held the sum of the step before when it was posted: begin sets "
                     "it to this rank's targets"});
    }
  for (size_t r = 0; r < c.ranks; ++r) {
    Numbers factor = shares;
    factor[r] = 1 / total;
    all.push_back({combined(step, factor),
                   fmt::format("rank {}'s gradients count as if it had one target: every rank must "
                               "multiply its gradients by its own number of targets",
                               r)});
  }
  for (size_t b = 0; b < c.buckets.size(); ++b) {
    Numbers kept = right;
    for (size_t p : c.buckets[b])
      std::copy_n(step.values[rank].begin() + first_of(c, p), c.sizes[p],
                  kept.begin() + first_of(c, p));
    all.push_back({kept, fmt::format("bucket {} of {} was not copied back: its gradients are still "
                                     "this rank's own",
                                     b, c.buckets.size())});
  }
  return all;
}

/// The other model of each rank, whose only rank this is: its gradients are its means already.
void expect_other_model(const StepsCase& c, const Parcel& rank, size_t r, size_t s) {
  if (!c.two_models) return;
  const std::string error = rank.text(fmt::format("other_error.{}", s));
  const double off = rank.number(fmt::format("other_off.{}", s));
  if (error.empty() && off < 1e-5) return;
  stop(circumstance(c) +
       fmt::format("rank {}, step {}: {}", r, s + 1,
                   error.empty() ? fmt::format("a gradient is off by {:.2g}", off) : error));
}

}  // namespace

void expect_means(const StepsCase& c, const std::vector<Parcel>& ranks) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    const Step& step = c.steps[s];
    if (!c.is_complete(s, 0)) continue;
    for (size_t r = 0; r < c.ranks; ++r) {
      const std::string error = ranks[r].text(fmt::format("error.{}", s));
      if (!error.empty())
        stop(fmt::format("finish throws although all gradients are ready\nrank {}: {}", r, error));
      expect_other_model(c, ranks[r], r, s);
    }
    const auto got = numbers_of(ranks, fmt::format("gradients.{}", s));
    lab::grading::expect_on_every_rank(got, [&](size_t rank) {
      return Expected{
          .what = fmt::format("{}the gradients after step {}",
                              c.two_models ? fmt::format("{}: ", kTwoModels) : "", s + 1),
          .values = combined(step, shares_of(step)),
          .tolerance = {4e-6},
          .name =
              [&c](size_t i) {
                size_t p = 0;
                while (i >= c.sizes[p]) i -= c.sizes[p++];
                return fmt::format("parameter {}, element {}", p, i);
              },
          .mistakes = [&c, s, rank] { return mistakes(c, s, rank); },
          .if_not_finite = "the gradients: not a number: 0 targets divided by 0?"};
    });
    lab::grading::expect_same_bits(got, "the averaged gradients");
  }
}

void expect_exposed(const StepsCase& c, const std::vector<Parcel>& ranks) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    if (!c.is_complete(s, 0)) continue;
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
        stop(
            fmt::format("a rank waits {} than the network needs: post every bucket as soon as "
                        "possible, and let finish wait for all of them\nrank {}, step {}: {:.3f} "
                        "ms after its last gradient; the last bucket arrives after {:.3f} ms",
                        exposed > least ? "longer" : "less", r, s + 1, 1e3 * exposed, 1e3 * least));
    }
  }
}

}  // namespace lab08
