// Drawing waves, judging them, and naming the mistakes.
#include "tests/labs/05_microbatches/waves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "common/format.h"

namespace lab05 {

using lab::counted;
using lab::TokenBatch;
using lab::grading::expect_on_every_rank;
using lab::grading::Expected;
using lab::grading::MicrobatchPart;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::TrainingCase;

namespace {

constexpr int64_t kContext = 7;
constexpr int64_t kVocab = 19;
// Of the largest gradient: two right ways to compute one differ by up to 2e-6 of it, since places
// of factors move the rounding.
constexpr double kTolerance = 5e-6;

std::vector<TokenBatch> draw_microbatches(int count, Microbatches differ_in, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(generator() % static_cast<uint64_t>(n));
  };
  const int64_t without = below(3);  // which of three have no targets
  std::vector<TokenBatch> batches;
  for (int k = 0; k < count; ++k) {
    const bool alike = differ_in == Microbatches::kAlike;
    const int64_t length = alike ? 5 : 1 + below(kContext);
    std::vector<int64_t> rows(static_cast<size_t>(alike ? 1 : 1 + below(3)), length);
    const bool empty =
        differ_in == Microbatches::kNoTargets || (!alike && count > 1 && k % 3 == without);
    if (!alike)
      for (int64_t& row : rows) row = empty ? 1 : 1 + below(length);
    batches.push_back(lab::grading::draw_tokens(rows, length, kVocab, generator()));
  }
  return batches;
}

}  // namespace

TrainingCase draw_pipeline(int stages, std::vector<TokenBatch> microbatches, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(generator() % static_cast<uint64_t>(most - least + 1));
  };
  TrainingCase c{.name = {}, .model = {}};
  const int64_t heads = between(2, 3);
  c.model = {.vocab_size = kVocab,
             .dim = 4 * heads,
             .heads = heads,
             .kv_heads = 1,
             .layers = stages + between(0, 1),
             .hidden_dim = between(5, 11),
             .context = kContext,
             .init_std = 0.3F,  // large, so that all gradients are well above rounding
             .tied_head = stages == 1 && between(0, 1) == 1};
  c.seed = seed % 1000;
  if (stages > 1) {
    c.layers_of_stages.assign(static_cast<size_t>(stages), 1);
    c.layers_of_stages[static_cast<size_t>(between(0, stages - 1))] += c.model.layers - stages;
  }
  c.steps = {{std::move(microbatches)}};
  return c;
}

Wave draw_wave(const std::string& name, const lab::Schedule& schedule, Microbatches differ_in,
               uint64_t seed) {
  seed += 100'000 * lab::grading::scenario_seed();
  Wave wave{
      .name = name,
      .schedule = schedule,
      .training = draw_pipeline(schedule.stage_count(),
                                draw_microbatches(schedule.microbatches, differ_in, seed), seed)};
  for (const TokenBatch& batch : wave.microbatches())
    wave.total += static_cast<double>(batch.target_count());
  // Other waves of the step have targets, too; but a step may also have none.
  if (differ_in != Microbatches::kNoTargets) wave.total += 37.0 * static_cast<double>(seed % 3);
  wave.training.leftover = seed % 2 == 0 ? 0.25F : 0.0F;
  return wave;
}

std::vector<Wave> draw_waves(int stages, uint64_t seed,
                             const std::function<lab::Schedule(const Size&)>& regular,
                             const std::function<lab::Schedule(const Size&, uint64_t)>& random) {
  std::vector<Wave> waves;
  for (const int m : {1, 2, 3, 4, 5, 6, 7, 8, 19}) {
    const Size size{stages, m};
    const Microbatches shapes = Microbatches::kShapes;
    const lab::Schedule drawn = random(size, lab::grading::scenario_seed() + ++seed);
    const std::string name = counted(m, "microbatch");
    waves.push_back(draw_wave(name, regular(size), shapes, 10 * seed));
    waves.push_back(draw_wave(name + ", another order", drawn, shapes, 10 * seed + 1));
    waves.push_back(draw_wave(name + ", the same once more", drawn, shapes, 10 * seed + 2));
    if (m % 3 == 2)
      waves.push_back(draw_wave(name + ", without any target", regular(size),
                                Microbatches::kNoTargets, 10 * seed + 3));
  }
  return waves;
}

void fill_missing_tokens(Parcel& input, int64_t vocab) {
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step)
    for (int k = 0; k < static_cast<int>(input.number(fmt::format("microbatches.{}", step))); ++k) {
      const std::string entry = fmt::format("microbatch.{}.{}", step, k);
      const TokenBatch batch = input.batch(entry);
      if (!batch.tokens.empty()) continue;
      const std::vector<int64_t> rows(static_cast<size_t>(batch.batch), batch.length);
      input.set(entry, lab::grading::draw_tokens(rows, batch.length, vocab,
                                                 uint64_t{100} + static_cast<uint64_t>(k)));
    }
}

Course Wave::course(int stage, int first_rank, const Parcel& result) const {
  const lab::ActionList& actions = schedule.stages[static_cast<size_t>(stage)];
  return {.stage = stage,
          .first_rank = first_rank,
          .actions = actions,
          .messages = messages_in(actions, stage, microbatches(), training.model.dim),
          .operations = operations_of(result),
          .returned = !result.has("returned") || result.number("returned") != 0};
}

WaveRun::WaveRun(const Wave& of, int first, std::vector<Parcel> results)
    : wave(of),
      first_rank(first),
      stages(std::move(results)),
      oracle(of.training),
      parts(oracle.parts(0, {oracle.initial_weights()})) {}

namespace {

/// All stages but the last get a number of targets that means nothing.
Parcel input_of(const Wave& wave, int stage, int pipeline) {
  const std::vector<double> decoys = {0, 1, -7, 1000};
  Parcel input = wave.training.input(stage);
  if (wave.training.seed % 2 == 1) fill_missing_tokens(input, kVocab);
  input.set_text("schedule", to_text(wave.schedule));
  input.set("lost", wave.lost);
  input.set("pipeline", pipeline);  // which ranks of the world belong together; -1: all
  input.set("total", stage + 1 == wave.stages()
                         ? wave.total
                         : decoys[(wave.training.seed + static_cast<uint64_t>(stage)) % 4]);
  return input;
}

void expect_calls_of_loss(const WaveRun& run) {
  for (int s = 0; s + 1 < run.wave.stages(); ++s)
    if (const size_t calls = run.stages[static_cast<size_t>(s)].numbers("order").size(); calls > 0)
      lab::grading::stop(fmt::format("rank {} calls loss {} times: only the last stage has logits",
                                     run.first_rank + s, calls));
  Numbers got = run.stages.back().numbers("order");
  std::ranges::sort(got);  // a loss may be computed any time between forward and backward
  Numbers right(run.wave.microbatches().size());
  std::iota(right.begin(), right.end(), 0.0);
  if (got != right)
    lab::grading::stop(fmt::format(
        "rank {}, the last stage, calls loss for {}; it should be called once for each, even for "
        "one without targets: {}",
        run.last_rank(),
        got.empty() ? "no microbatch" : fmt::format("the microbatches {}", fmt::join(got, " ")),
        fmt::join(right, " ")));
}

Expected expected_gradients(const WaveRun& run, int stage) {
  const auto share = [&run](const MicrobatchPart&) { return run.share(); };
  const std::string what = "the gradients";
  Expected expected{
      .what = run.wave.hint.empty() ? what : run.wave.hint + "\n" + what,
      .values = run.with_leftover(run.oracle.of_stage(run.parts.combine(share), stage)),
      .tolerance = run.oracle.of_stage(run.parts.magnitude(), stage),
      .name = [&run,
               stage](size_t i) { return run.oracle.name(i + run.oracle.range(stage).first); },
      .mistakes = [&run, stage] { return gradient_mistakes(run, stage); }};
  // An element may be a difference of large numbers inside a microbatch.
  const double largest =
      lab::grading::largest_magnitude(run.with_leftover(run.parts.combine(share)));
  const double scale = run.parts.targets * run.share();  // magnitudes are of a mean over this wave
  for (double& t : expected.tolerance) t = kTolerance * (scale * t + largest) + 1e-30;
  return expected;
}

Expected expected_loss(const WaveRun& run, int stage) {
  const double value = run.parts.combine_losses([&](const MicrobatchPart&) { return run.share(); });
  const bool last = stage + 1 == run.wave.stages();
  return {.what = last ? "the returned loss"
                       : "the returned loss: only the last stage knows one, the others return 0",
          .values = {last ? value : 0.0},
          .tolerance = {kTolerance * std::max(1.0, std::abs(value))},
          .mistakes = [&run, last] {
            return last ? loss_mistakes(run) : std::vector<lab::grading::Mistake>{};
          }};
}

std::string totals_in_words(const WaveRun& run) {
  const Numbers totals = run.stages.back().numbers("totals");
  const bool alike = std::ranges::all_of(totals, [&](double t) { return t == totals[0]; });
  return fmt::format("loss was called with total_targets = {}; run_actions was given {} there",
                     alike && !totals.empty() ? fmt::format("{}", totals[0])
                                              : fmt::format("{}", fmt::join(totals, ", ")),
                     run.wave.total);
}

/// What travels of a microbatch.
double bytes_of(const TokenBatch& batch, int64_t dim) {
  return static_cast<double>(batch.batch * batch.length * dim) * sizeof(float);
}

/// The most bytes that a stage needs at one moment, generously: four tensors for every microbatch
/// that still has an action to come, and as many for one that has just been finished.
double enough_memory(const Wave& wave, const lab::ActionList& actions) {
  const auto bytes = [&](int k) {
    return 4 * bytes_of(wave.microbatches()[static_cast<size_t>(k)], wave.training.model.dim);
  };
  std::map<int, size_t> last;  // action of a microbatch
  for (size_t i = 0; i < actions.size(); ++i) last[actions[i].microbatch] = i;
  std::set<int> in_flight;
  double now = 0, most = 0, largest = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    const int k = actions[i].microbatch;
    if (in_flight.insert(k).second) now += bytes(k);
    most = std::max(most, now);
    largest = std::max(largest, bytes(k));
    if (last[k] == i) now -= bytes(k);
  }
  return most + largest;
}

/// Of a wave with a single microbatch in flight. The stage itself then needs as much at the end as
/// in between, but for a few microbatches' worth; among hundreds, outputs that are kept stand out.
std::string wrong_outputs(const Wave& wave, const Course& course, const Parcel& result) {
  if (wave.schedule.microbatches < 200 ||
      !std::ranges::is_sorted(course.actions, {}, &lab::Action::microbatch))
    return "";
  double all = 0;
  for (const TokenBatch& batch : wave.microbatches())
    all += bytes_of(batch, wave.training.model.dim);
  if (result.number("outputs") < all / 2) return "";
  return fmt::format(
      "rank {} keeps the outputs of most of {} microbatches, although only one is in flight at a "
      "time: drop an output (erase it from its map, for example) when its microbatch's last action "
      "is done",
      course.rank(), wave.schedule.microbatches);
}

/// Empty if nothing is wrong. A posted message may keep its tensor to the end.
std::string wrong_memory(const Wave& wave, const Course& course, const Parcel& result) {
  const double held = result.number("held");
  const double enough = enough_memory(wave, course.actions);
  if (held <= enough || std::ranges::any_of(course.actions, &lab::Action::posted)) return "";
  return fmt::format(
      "rank {} holds {:.0f} bytes of tensors at one moment of a wave of {}, but needs less than "
      "{:.0f}: drop the tensors of a microbatch (erase them from their map, for example) when its "
      "last action is done",
      course.rank(), held, counted(wave.schedule.microbatches, "microbatch"), enough);
}

void judge_wave(const Wave& wave, int first_rank, const std::vector<Parcel>& results) {
  const WaveRun run(wave, first_rank, results);
  std::vector<Course> courses;
  for (int s = 0; s < wave.stages(); ++s) {
    courses.push_back(wave.course(s, first_rank, results[static_cast<size_t>(s)]));
    if (std::string wrong = wrong_course(courses.back()); !wrong.empty()) lab::grading::stop(wrong);
  }
  expect_calls_of_loss(run);
  expect_on_every_rank(
      lab::grading::tensors_of(results, "gradients"),
      [&](size_t s) { return expected_gradients(run, static_cast<int>(s)); },
      [&](size_t) { return totals_in_words(run); }, lab::grading::Blame::kLastRank);
  if (std::isfinite(wave.lost))
    expect_on_every_rank(lab::grading::numbers_of(results, "loss"),
                         [&](size_t s) { return expected_loss(run, static_cast<int>(s)); });
  else if (const double loss = results.back().number("loss"); std::isfinite(loss))
    lab::grading::stop(
        fmt::format("rank {}: the returned loss is {:.4g}, although every loss of the wave is {}: "
                    "it must show that a run has gone wrong",
                    run.last_rank(), loss, wave.lost));
  // In a large step hardly anything of it shows in the gradients. Some divide afterwards.
  for (const double total : results.back().numbers("totals"))
    if (total != 1 && total != run.wave.total)
      lab::grading::stop(fmt::format("rank {}: {}: does it fit in an int?", run.last_rank(),
                                     totals_in_words(run)));
  for (const Course& course : courses)
    if (std::string wrong = wrong_waits(course); !wrong.empty()) lab::grading::stop(wrong);
  for (const Course& course : courses) {
    const Parcel& result = results[static_cast<size_t>(course.stage)];
    for (const std::string& wrong :
         {wrong_memory(wave, course, result), wrong_outputs(wave, course, result)})
      if (!wrong.empty()) lab::grading::stop(wrong);
  }
}

/// Waves that run side by side in a call, one after the other in the order of ranks.
struct Round {
  std::vector<const Wave*> waves = {};

  int first_rank(size_t wave) const {
    int rank = 0;
    for (size_t w = 0; w < wave; ++w) rank += waves[w]->stages();
    return rank;
  }
  int ranks() const { return first_rank(waves.size()); }
  lab::grading::Call call() const;
  std::vector<Parcel> part(const std::vector<Parcel>& ranks, size_t wave) const {
    const auto first = ranks.begin() + first_rank(wave);
    return {first, first + waves[wave]->stages()};
  }
};

lab::grading::Call Round::call() const {
  lab::grading::Call call{.scenario = "wave", .inputs = {}};
  for (size_t w = 0; w < waves.size(); ++w) {
    call.name += (w == 0 ? "" : "; ") + waves[w]->name;
    for (int s = 0; s < waves[w]->stages(); ++s)
      call.inputs.push_back(input_of(*waves[w], s, waves.size() == 1 ? -1 : static_cast<int>(w)));
  }
  return call;
}

/// As many waves in each as have room; `single` takes the ranks that are left over.
std::vector<Round> rounds_of(const std::vector<Wave>& waves, int ranks, const Wave& single) {
  std::vector<Round> rounds;
  for (const Wave& wave : waves) {
    if (rounds.empty() || rounds.back().ranks() + wave.stages() > ranks) rounds.emplace_back();
    rounds.back().waves.push_back(&wave);
  }
  for (Round& round : rounds)
    while (round.ranks() < ranks) round.waves.push_back(&single);
  return rounds;
}

}  // namespace

void judge_waves(const std::vector<Wave>& waves, int ranks, lab::grading::JobOptions options) {
  const Wave single = draw_wave("one stage", gpipe_plan({1, 1}), Microbatches::kAlike, 1);
  const std::vector<Round> rounds = rounds_of(waves, ranks, single);
  std::vector<lab::grading::Call> calls;
  for (const Round& round : rounds) calls.push_back(round.call());
  options.explain = [&](size_t call, const std::vector<Parcel>& results,
                        const std::string& diagnosis) {
    const Round& round = rounds[call];
    std::vector<Course> courses;
    for (size_t w = 0; w < round.waves.size(); ++w)
      for (int s = 0; s < round.waves[w]->stages(); ++s)
        courses.push_back(round.waves[w]->course(s, round.first_rank(w),
                                                 round.part(results, w)[static_cast<size_t>(s)]));
    return why_they_stand_still(courses, diagnosis);
  };
  judge_calls(calls, options, [&](size_t call, const std::vector<Parcel>& results) {
    const Round& round = rounds[call];
    for (size_t w = 0; w < round.waves.size(); ++w)
      judge_wave(*round.waves[w], round.first_rank(w), round.part(results, w));
  });
}

}  // namespace lab05
