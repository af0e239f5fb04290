// What the judge makes of what ranks publish, and of their silence.
#include "common/run/watch/judge.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/store/memory_store.h"
#include "common/run/rendezvous/job_keys.h"

namespace lab::judge_test {
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

  void publish(int rank, const FlightRecorder& recorder) {
    store_.set(job_keys::snapshot(rank), encode_snapshot(recorder.snapshot()));
  }
  void beat() { publish(1, rank1_); }

  /// Looks every beat until something is found; nothing after `patience`.
  std::optional<Diagnosis> look_for(std::chrono::seconds patience, bool beats_go_on) {
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      publish(0, rank0_);
      if (beats_go_on) beat();
      if (auto diagnosis = judge_.look()) return diagnosis;
      if (auto diagnosis = judge_.rank_with_error()) return diagnosis;
      std::this_thread::sleep_for(Judge::kBeat);
    }
    return std::nullopt;
  }

  MemoryStore store_;
  FlightRecorder rank0_{0};
  FlightRecorder rank1_{1};
  Judge judge_{store_, 2,
               [](int rank) { return rank == 0 ? std::optional(Fate{}) : std::nullopt; }};
};

TEST_F(Beats, ARankThatIsNoLongerHeardOfIsNamed) {
  beat();
  const auto diagnosis = look_for(std::chrono::seconds(30), false);
  ASSERT_TRUE(diagnosis.has_value()) << "silence was not noticed";
  EXPECT_NE(diagnosis->headline.find("rank 1 has not been heard from"), std::string::npos)
      << diagnosis->text();
}

TEST_F(Beats, ARankThatComputesForLongIsNot) {
  const auto diagnosis = look_for(Judge::kSilence + std::chrono::seconds(1), true);
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
TEST_F(Beats, NonsenseInTheStoreSaysNothingAboutARank) {
  beat();
  store_.set(job_keys::ended(1), "many");
  EXPECT_FALSE(judge_.look().has_value());
  EXPECT_EQ(judge_.read()[1].fate, RankFate::kRunning);
}

TEST_F(Beats, ARankThatIsGoneIsNamedAndNotTheErrorThatItCauses) {
  beat();
  store_.set(job_keys::failed(0), std::to_string(store_.add(job_keys::kFailures, 1)));
  const auto diagnosis = look_for(std::chrono::seconds(30), false);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_NE(diagnosis->headline.find("rank 1 has not been heard from"), std::string::npos)
      << diagnosis->text();
}

TEST_F(Beats, AnErrorOfARankIsReportedWhileAllOthersAreHeardOf) {
  beat();
  store_.set(job_keys::failed(0), std::to_string(store_.add(job_keys::kFailures, 1)));
  const auto diagnosis = look_for(Judge::kSilence - std::chrono::seconds(1), true);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->headline, "rank 0 has ended with an error of its own");
}

/// Rank 1 has been killed a moment after it said what it did; its launcher saw it.
TEST(JudgeOfALauncher, ExplainsAnEndByWhatWasPublishedLast) {
  MemoryStore store;
  std::optional<Fate> fate_of_rank1 = Fate{};
  Judge judge(store, 2, [&](int rank) { return rank == 1 ? fate_of_rank1 : Fate{}; });
  EXPECT_FALSE(judge.explain_end().has_value()) << "nobody has published anything";
  for (const int rank : {0, 1}) {
    FlightRecorder recorder(rank);
    recorder.add_group(0, 0b11, "world");
    const uint64_t first = recorder.posted({.kind = OpKind::kBarrier, .sequence = 1});
    if (rank == 1) {
      recorder.done(first);
    } else {
      recorder.waiting(first);
    }
    store.set(job_keys::snapshot(rank), encode_snapshot(recorder.snapshot()));
  }
  fate_of_rank1 = Fate{RankFate::kKilled, SIGKILL};
  EXPECT_FALSE(judge.explain_end().has_value()) << "rank 1 has done its part in what rank 0 does";

  FlightRecorder waiting(0);
  waiting.add_group(0, 0b11, "world");
  waiting.waiting(waiting.posted({.kind = OpKind::kBarrier, .sequence = 2}));
  store.set(job_keys::snapshot(0), encode_snapshot(waiting.snapshot()));
  // An exception has ended rank 0 as well: because of rank 1.
  store.set(job_keys::failed(0), "1");
  const auto diagnosis = judge.explain_end();
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->headline,
            "rank 1 was killed (signal 9: SIGKILL) while rank 0 waited for it in barrier #2");
  EXPECT_EQ(judge.read()[1].status, SIGKILL);
}

TEST(JudgeOfALauncher, AStoppedProcessIsNotRunning) {
  const pid_t child = fork();
  if (child == 0)
    while (true) pause();
  EXPECT_EQ(fate_of_process(child).fate, RankFate::kRunning);
  kill(child, SIGSTOP);
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  EXPECT_EQ(fate_of_process(child).fate, RankFate::kStopped);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  EXPECT_EQ(fate_of_process(child).fate, RankFate::kExited);
  EXPECT_EQ(fate_of_ended(status).fate, RankFate::kKilled);
  EXPECT_EQ(fate_of_ended(status).status, SIGKILL);
}

}  // namespace
}  // namespace lab::judge_test
