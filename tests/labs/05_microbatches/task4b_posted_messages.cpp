// Task 4b: executing a program with posted messages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/labs/05_microbatches/plans.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05::task4b {
namespace {

using lab::Schedule;
using lab::grading::late_messages;

Schedule posted_one_f_one_b(const Size& size) {
  return with_messages_beside(one_f_one_b_plan(size), /*posted_sends=*/true);
}

/// GPipe whose sends block, as in task 4a, and whose recvs are posted just before their passes.
Schedule posted_recvs(const Size& size) {
  Schedule program = with_messages_beside(gpipe_plan(size), /*posted_sends=*/false);
  for (lab::ActionList& list : program.stages)
    for (lab::Action& action : list) action.posted = is_recv(action);
  return program;
}

/// Two stages: the first one posts the sends of all microbatches, the second one takes the last of
/// them first, and posts what it sends, or does not.
Schedule last_one_first(int microbatches, bool posts) {
  std::string first;
  std::string first_backwards;
  std::string second;
  for (int k = 0; k < microbatches; ++k) {
    const int j = microbatches - 1 - k;
    first += fmt::format(" F{0} >F{0}*", k);
    first_backwards += fmt::format(" <B{0} B{0}", j);
    second += fmt::format(" <F{0} F{0} B{0} >B{0}{1}", j, posts ? "*" : "");
  }
  return program_from(fmt::format("stages 2 microbatches {}\n0:{}{}\n1:{}", microbatches, first,
                                  first_backwards, second));
}

/// Each after a simpler form: where that is right, the hint says what is wrong.
std::vector<Wave> posted_waves(int stages) {
  const auto with_hint = [](Wave wave, const std::string& hint) {
    wave.hint = hint;
    return wave;
  };
  const Microbatches alike = Microbatches::kAlike;
  const Size size{stages, 5};
  const Schedule one_f_one_b = posted_one_f_one_b(size);
  const std::string under_way =
      "right with blocking sends, wrong with posted ones: a tensor changes before its data has "
      "arrived on the other side";
  return {with_hint(draw_wave("GPipe, recvs posted", posted_recvs(size), alike, 410),
                    "a pass reads what a posted recv brings before anything has waited for it (if "
                    "task 4a fails too, fix that first)"),
          with_hint(draw_wave("GPipe, sends posted", with_messages_beside(gpipe_plan(size), true),
                              alike, 410),
                    under_way),
          with_hint(draw_wave("1F1B, sends posted", one_f_one_b, alike, 412), under_way),
          with_hint(
              draw_wave("1F1B, recvs posted at the beginning", with_early_recvs(one_f_one_b), alike,
                        412),
              "right while each recv comes just before its pass, wrong when all recvs are posted "
              "at the beginning: is one tensor used for all? Every posted recv needs its own, and "
              "must be waited for where the pass that reads it begins")};
}

/// The programs that teach, from simple to strange, with microbatches that are all alike, so that a
/// mix-up can be named.
std::vector<Wave> simple_waves() {
  const Microbatches alike = Microbatches::kAlike;
  std::vector<Wave> waves = posted_waves(2);
  const std::vector<Wave> strange = {
      draw_wave("messages meet by their tag",
                program_from("stages 2 microbatches 3\n"
                             "0: F0 >F0* F1 >F1* F2 >F2* <B0 B0 <B1 B1 <B2 B2\n"
                             "1: <F2 F2 B2 >B2* <F0 F0 B0 >B0* <F1 F1 B1 >B1*"),
                alike, 403),
      draw_wave("many sends are under way at once", last_one_first(20, true), alike, 406),
      draw_wave("many sends are under way while others block", last_one_first(20, false), alike,
                408),
      draw_wave("a posted send does not hold up the stage",
                program_from("stages 2 microbatches 3\n"
                             "0: F0 F1 >F1* >F0* F2 >F2* <B2 B2 <B0 B0 <B1 B1\n"
                             "1: <F2 F2 B2 >B2* <F0 F0 <F1 F1 B1 >B1* B0 >B0*"),
                alike, 404),
      draw_wave("posted messages next to blocking ones",
                program_from("stages 2 microbatches 2\n"
                             "0: F0 F1 >F0 >F1 <B0* <B1* B0 B1\n"
                             "1: <F0* <F1 F1 F0 B0 B1 >B0 >B1*"),
                alike, 405),
      draw_wave("microbatches of several shapes, one without targets", posted_one_f_one_b({2, 3}),
                Microbatches::kShapes, 407),
  };
  waves.insert(waves.end(), strange.begin(), strange.end());
  return waves;
}

std::vector<Wave> any_waves(int stages, uint64_t seed) {
  return draw_waves(stages, seed, posted_one_f_one_b, random_program);
}

TEST(Task4b, TwoStages) { judge_waves(simple_waves(), 2, late_messages(40)); }

TEST(Task4b, ThreeStages) { judge_waves(posted_waves(3), 3, late_messages(41)); }

TEST(Task4b, APostedRecvHoldsUpNoOtherPass) {
  judge_waves({draw_wave("recvs posted early",
                         program_from("stages 3 microbatches 2\n"
                                      "0: <B0* F0 >F0 <B1* F1 >F1 B0 B1\n"
                                      "1: <F0* <F1* <B0* <B1* F0 >F0 F1 >F1 B0 >B0 B1 >B1\n"
                                      "2: <F0* F0 <F1* B0 >B0 F1 B1 >B1"),
                         Microbatches::kAlike, 420),
               draw_wave("one microbatch after the other, all recvs posted",
                         with_early_recvs(with_messages_beside(
                             program_from("stages 3 microbatches 2\n0: F0 B0 F1 B1\n"
                                          "1: F0 B0 F1 B1\n2: F0 B0 F1 B1"),
                             true)),
                         Microbatches::kAlike, 421)},
              3, late_messages(42));
}

TEST(Task4b, AnyProgramOfTwoStages) { judge_waves(any_waves(2, 440), 2, late_messages(44)); }

TEST(Task4b, AnyProgramOfThreeStages) { judge_waves(any_waves(3, 450), 3, late_messages(45)); }

TEST(Task4b, AnyNumberOfStages) {
  std::vector<Wave> waves;
  for (const int stages : {6, 3, 2, 4, 5})
    for (const Wave& wave : any_waves(stages, 460 + static_cast<uint64_t>(stages)))
      if (wave.schedule.microbatches % 3 == stages % 3) waves.push_back(wave);
  judge_waves(waves, 6, late_messages(46));
}

TEST(Task4b, ThreeProcesses) {
  std::vector<Wave> waves;
  for (const Size& size : {Size{3, 4}, Size{2, 3}, Size{3, 5}}) {
    const auto seed = uint64_t{470} + static_cast<uint64_t>(size.stages);
    waves.push_back(draw_wave("1F1B", posted_one_f_one_b(size), Microbatches::kShapes, seed));
    waves.push_back(
        draw_wave("another order", random_program(size, seed), Microbatches::kShapes, seed + 10));
  }
  judge_waves(waves, 3, {});
}

}  // namespace
}  // namespace lab05::task4b
