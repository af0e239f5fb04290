// What rank 0 makes of the beats of ranks that nobody started together.
#include "common/run/watch/beat_judge.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "common/comm/store/memory_store.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/process_state.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;

/// Rank 0 is this process, and waits for rank 1, which lives where this machine's kernel cannot
/// see.
class Beats : public testing::Test {
 protected:
  Beats() {
    for (FlightRecorder* recorder : {&rank0_, &rank1_}) recorder->add_group(0, 0b11, "world");
    rank0_.waiting(rank0_.posted({.kind = OpKind::kRecv, .peer = 1, .bytes = 4}));
  }

  void beat() { store_.set(job_keys::beat(1), encode_beat(++beats_, rank1_.snapshot())); }

  /// Looks every beat until something is found; nothing after `patience`.
  std::optional<Diagnosis> look_for(std::chrono::seconds patience, bool beats_go_on) {
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      if (beats_go_on) beat();
      if (auto diagnosis = judge_.look()) return diagnosis;
      std::this_thread::sleep_for(BeatJudge::kBeat);
    }
    return std::nullopt;
  }

  MemoryStore store_;
  FlightRecorder rank0_{0};
  FlightRecorder rank1_{1};
  uint64_t beats_ = 0;
  BeatJudge judge_{store_,
                   rank0_,
                   0,
                   {{.pid = getpid(), .host = "here", .space = process_space()},
                    {.pid = 1, .host = "far away", .space = "another machine"}}};
};

TEST_F(Beats, ARankThatIsNoLongerHeardOfIsNamed) {
  beat();
  const auto diagnosis = look_for(std::chrono::seconds(30), false);
  ASSERT_TRUE(diagnosis.has_value()) << "silence was not noticed";
  EXPECT_NE(diagnosis->headline.find("rank 1 has not been heard of"), std::string::npos)
      << diagnosis->text();
}

TEST_F(Beats, ARankThatComputesForLongIsNot) {
  const auto diagnosis = look_for(BeatJudge::kSilence + std::chrono::seconds(1), true);
  EXPECT_FALSE(diagnosis.has_value()) << diagnosis->text();
}

TEST_F(Beats, ARankWhoseLauncherSaysThatItWasKilledIsNamedAtOnce) {
  beat();
  store_.set(job_keys::ended(1), std::to_string(SIGKILL));  // as waitpid would say
  const auto diagnosis = look_for(std::chrono::seconds(3), false);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_NE(diagnosis->headline.find("rank 1 was killed (signal 9: SIGKILL)"), std::string::npos)
      << diagnosis->text();
}

/// As when the connections to a host break off with the host: then rank 0 throws an error.
TEST_F(Beats, ARankThatIsGoneIsNamedAndNotTheErrorThatItCauses) {
  beat();
  store_.set(job_keys::failed(0), std::to_string(store_.add(job_keys::kFailures, 1)));
  const auto diagnosis = look_for(std::chrono::seconds(30), false);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_NE(diagnosis->headline.find("rank 1 has not been heard of"), std::string::npos)
      << diagnosis->text();
}

TEST_F(Beats, AnErrorOfARankIsReportedWhileAllOthersAreHeardOf) {
  beat();
  store_.set(job_keys::failed(0), std::to_string(store_.add(job_keys::kFailures, 1)));
  const auto diagnosis = look_for(BeatJudge::kSilence - std::chrono::seconds(1), true);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->headline, "rank 0 has ended with an error of its own");
}

}  // namespace
}  // namespace lab
