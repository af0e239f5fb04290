// Task 4a: executing a program without posted messages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/labs/05_microbatches/plans.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05::task4a {
namespace {

using lab::Schedule;
using lab::grading::late_messages;

Schedule blocking_gpipe(const Size& size) {
  return with_messages_beside(gpipe_plan(size), /*posted_sends=*/false);
}

/// One microbatch after the other, each there and back: only one is in flight at any moment.
Schedule one_at_a_time(int microbatches) {
  std::string first = "0:", last = "1:";
  for (int k = 0; k < microbatches; ++k) {
    first += fmt::format(" F{0} >F{0} <B{0} B{0}", k);
    last += fmt::format(" <F{0} F{0} B{0} >B{0}", k);
  }
  return program_from(fmt::format("stages 2 microbatches {}\n{}\n{}", microbatches, first, last));
}

/// From simple to strange, with microbatches that are all alike, so that a mix-up can be named.
std::vector<Wave> simple_waves() {
  const Microbatches alike = Microbatches::kAlike;
  Wave infinite =
      draw_wave("GPipe, where every loss is infinite", blocking_gpipe({2, 2}), alike, 408);
  infinite.lost = std::numeric_limits<double>::infinity();
  Wave not_a_number =
      draw_wave("GPipe, where no loss is a number", blocking_gpipe({2, 2}), alike, 409);
  not_a_number.lost = std::numeric_limits<double>::quiet_NaN();
  Wave part_of_a_step = draw_wave("a wave that is given fewer targets than it has",
                                  blocking_gpipe({2, 5}), Microbatches::kShapes, 415);
  part_of_a_step.total = 3;
  Wave of_a_large_step = draw_wave("a wave of a step with billions of targets",
                                   blocking_gpipe({2, 2}), Microbatches::kShapes, 416);
  of_a_large_step.total = 5'000'000'123;
  return {
      draw_wave("GPipe", blocking_gpipe({2, 2}), alike, 400),
      draw_wave("GPipe", blocking_gpipe({2, 5}), alike, 410),
      draw_wave("backwards from the end",
                program_from("stages 2 microbatches 3\n"
                             "0: F0 >F0 F1 >F1 F2 >F2 <B2 B2 <B1 B1 <B0 B0\n"
                             "1: <F0 F0 <F1 F1 <F2 F2 B2 >B2 B1 >B1 B0 >B0"),
                alike, 402),
      draw_wave("one microbatch after the other", one_at_a_time(16), alike, 404),
      draw_wave("recvs far from their passes",
                program_from("stages 2 microbatches 2\n"
                             "0: F0 >F0 F1 >F1 <B0 <B1 B1 B0\n"
                             "1: <F0 <F1 F1 F0 B0 >B0 B1 >B1"),
                alike, 405),
      draw_wave("sends far from their passes",
                program_from("stages 2 microbatches 2\n"
                             "0: F0 F1 >F0 >F1 <B0 B0 <B1 B1\n"
                             "1: <F0 F0 <F1 F1 B1 B0 >B0 >B1"),
                alike, 403),
      draw_wave("microbatches of several shapes, one without targets", blocking_gpipe({2, 3}),
                Microbatches::kShapes, 407),
      infinite,
      not_a_number,
      part_of_a_step,
      of_a_large_step,
  };
}

std::vector<Wave> any_waves(int stages, uint64_t seed) {
  return draw_waves(stages, seed, blocking_gpipe, random_blocking_program);
}

TEST(Task4a, TwoStages) { judge_waves(simple_waves(), 2, late_messages(40)); }

TEST(Task4a, HundredsOfMicrobatches) {
  judge_waves({draw_wave("one microbatch of another shape after the other", one_at_a_time(260),
                         Microbatches::kShapes, 413)},
              2, late_messages(47));
}

TEST(Task4a, OneStage) { judge_waves(any_waves(1, 430), 1, late_messages(43)); }

TEST(Task4a, AnyProgramOfTwoStages) { judge_waves(any_waves(2, 440), 2, late_messages(44)); }

TEST(Task4a, AnyProgramOfThreeStages) { judge_waves(any_waves(3, 450), 3, late_messages(45)); }

TEST(Task4a, AnyNumberOfStages) {
  std::vector<Wave> waves;
  for (const int stages : {6, 3, 2, 1, 4, 5})
    for (const Wave& wave : any_waves(stages, 460 + static_cast<uint64_t>(stages)))
      if (wave.schedule.microbatches % 3 == stages % 3) waves.push_back(wave);
  judge_waves(waves, 6, late_messages(46));
}

TEST(Task4a, ThreeProcesses) {
  std::vector<Wave> waves;
  for (const Size& size : {Size{3, 4}, Size{1, 2}, Size{2, 3}, Size{3, 5}}) {
    const auto seed = uint64_t{470} + static_cast<uint64_t>(size.stages);
    waves.push_back(draw_wave("GPipe", blocking_gpipe(size), Microbatches::kShapes, seed));
    waves.push_back(draw_wave("another order", random_blocking_program(size, seed),
                              Microbatches::kShapes, seed + 10));
  }
  judge_waves(waves, 3, {});
}

}  // namespace
}  // namespace lab05::task4a
