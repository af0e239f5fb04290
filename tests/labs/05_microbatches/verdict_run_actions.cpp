// Verdict on task 4: executing a program, whatever lab::validate accepts.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/pipeline/validate.h"
#include "tests/labs/05_microbatches/verdict_plans.h"
#include "tests/labs/05_microbatches/verdict_wave.h"

namespace lab05 {
namespace {

using lab::Schedule;

WaveCase wave(const Schedule& schedule) { return {.schedule = schedule}; }

WaveCase wave(const std::string& text) {
  const Schedule schedule = lab::schedule_from_text(text, "a program of the tests");
  lab::require_valid(schedule, "a program of the tests");
  return wave(schedule);
}

Schedule blocking_gpipe(const Size& size) { return with_all_messages(gpipe_plan(size), false); }
Schedule posted_one_f_one_b(const Size& size) {
  return with_all_messages(one_f_one_b_plan(size), true);
}

/// All recvs at the beginning, in the order in which they were.
Schedule with_early_recvs(Schedule program) {
  for (lab::ActionList& list : program.stages) {
    std::stable_partition(list.begin(), list.end(), [](const lab::Action& action) {
      return is_message(action.kind) && !is_send(action.kind);
    });
    for (lab::Action& action : list) action.posted = is_message(action.kind);
  }
  return program;
}

TEST(Task4, OneStage) { expect_wave(wave(gpipe_plan({1, 3})), late(41)); }

TEST(Task4, OneMicrobatch) {
  expect_wave(wave(blocking_gpipe({2, 1})), late(41));
  expect_wave(wave(blocking_gpipe({3, 1})), late(42));
}

TEST(Task4, Gpipe) {
  expect_wave(wave(blocking_gpipe({3, 2})), late(43));
  expect_wave(wave(blocking_gpipe({4, 5})), late(44));
}

TEST(Task4, OneForwardOneBackward) {
  for (const Size& size : {Size{2, 3}, Size{3, 5}, Size{4, 8}, Size{6, 2}})
    expect_wave(wave(posted_one_f_one_b(size)), late(45));
}

TEST(Task4, EveryTargetCountsTheSame) {
  WaveCase c = wave(posted_one_f_one_b({3, 4}));
  c.differ_in = Microbatches::kTargets;
  expect_wave(c, late(46));
}

TEST(Task4, MicrobatchesOfDifferentShapes) {
  for (const Schedule& schedule : {posted_one_f_one_b({3, 4}), random_program({2, 5}, 461)}) {
    WaveCase c = wave(schedule);
    c.differ_in = Microbatches::kShapes;
    expect_wave(c, late(461));
  }
}

TEST(Task4, AddsToTheGradients) {
  WaveCase c = wave(blocking_gpipe({2, 2}));
  c.leftover = 0.25F;
  expect_wave(c, late(47));
}

TEST(Task4, BackwardsInAnyOrder) {
  expect_wave(wave("stages 2 microbatches 3\n"
                   "0: F0 >F0 F1 >F1 F2 >F2 <B2 B2 <B1 B1 <B0 B0\n"
                   "1: <F0 F0 <F1 F1 <F2 F2 B2 >B2 B1 >B1 B0 >B0"),
              late(48));
  for (const Size& size : {Size{2, 5}, Size{3, 4}})
    expect_wave(wave(with_all_messages(random_plan(size, 480), true)), late(480));
}

TEST(Task4, MessagesFarFromTheirPasses) {
  for (const Size& size : {Size{2, 5}, Size{3, 3}, Size{4, 5}, Size{6, 8}})
    expect_wave(wave(random_blocking_program(size, 490)), late(49));
}

TEST(Task4, MessagesMeetByTheirTag) {
  expect_wave(wave("stages 2 microbatches 3\n"
                   "0: F0 >F0* F1 >F1* F2 >F2* <B0 B0 <B1 B1 <B2 B2\n"
                   "1: <F2 F2 B2 >B2* <F0 F0 B0 >B0* <F1 F1 B1 >B1*"),
              late(50));
}

TEST(Task4, APostedRecvDoesNotHoldUpTheStage) {
  expect_wave(wave("stages 3 microbatches 2\n"
                   "0: <B0* F0 >F0 <B1* F1 >F1 B0 B1\n"
                   "1: <F0* <F1* <B0* <B1* F0 >F0 F1 >F1 B0 >B0 B1 >B1\n"
                   "2: <F0* F0 <F1* B0 >B0 F1 B1 >B1"),
              late(51));
}

TEST(Task4, APostedSendDoesNotHoldUpTheStage) {
  expect_wave(wave("stages 2 microbatches 3\n"
                   "0: F0 F1 >F1* >F0* F2 >F2* <B2 B2 <B0 B0 <B1 B1\n"
                   "1: <F2 F2 B2 >B2* <F0 F0 <F1 F1 B1 >B1* B0 >B0*"),
              late(52));
}

TEST(Task4, PostedRecvsHaveMemoryOfTheirOwn) {
  for (const Size& size : {Size{2, 4}, Size{3, 3}}) {
    const Schedule simple = posted_one_f_one_b(size);
    expect_wave_like(wave(simple), wave(with_early_recvs(simple)),
                     "right while each recv comes just before its pass, wrong when all recvs are "
                     "posted at the beginning: every posted recv needs a tensor of its own, and "
                     "must be waited for where the pass that reads it begins",
                     late(53));
  }
}

TEST(Task4, PostedSendsKeepTheirTensors) {
  for (const Size& size : {Size{2, 4}, Size{3, 5}}) {
    const Schedule simple = blocking_gpipe(size);
    expect_wave_like(wave(simple), wave(with_all_messages(gpipe_plan(size), true)),
                     "right with blocking sends, wrong when the same sends are posted: a tensor "
                     "that is under way must stay as it is until its send has been waited for",
                     late(54));
  }
}

TEST(Task4, AnyValidProgram) {
  uint64_t seed = 550;
  for (const Size& size :
       {Size{2, 3}, Size{2, 8}, Size{3, 2}, Size{3, 5}, Size{4, 4}, Size{6, 3}}) {
    expect_wave(wave(random_program(size, seed)), late(seed));
    ++seed;
  }
}

TEST(Task4, OverGloo) {
  expect_wave(wave(posted_one_f_one_b({3, 4})), over_gloo());
  expect_wave(wave(random_program({3, 5}, 570)), over_gloo());
}

}  // namespace
}  // namespace lab05
