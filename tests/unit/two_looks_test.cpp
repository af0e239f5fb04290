// When a job is judged: soon after it has come to a halt, and never before.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "tests/unit/recorded_ranks.h"

namespace lab::two_looks_test {
namespace {

TEST(TwoLooks, ReportsHalfASecondAfterTheFirstLook) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  TwoLooks looks;
  int64_t first_report = -1;
  for (int64_t ms = 0; ms <= 1000 && first_report < 0; ms += 100) {
    if (looks.look(ranks.look(), ms * kMs)) first_report = ms;
    ranks.pass(100 * kMs);
  }
  EXPECT_EQ(first_report, 500);
}

TEST(TwoLooks, ReportsWithin1100MillisecondsWheneverItHappens) {
  for (int64_t moment = 0; moment < 1000; moment += 50) {
    Ranks ranks(2);
    TwoLooks looks;
    int64_t report = -1;
    for (int64_t ms = 0; ms <= 4000 && report < 0; ms += 50) {
      if (ms == moment) {
        ranks.wait(0, send(1));
        ranks.wait(1, send(0));
      }
      if (looks.look(ranks.look(), ms * kMs)) report = ms;
      ranks.pass(50 * kMs);
    }
    EXPECT_GE(report - moment, 500);
    EXPECT_LE(report - moment, 1100);
  }
}

TEST(TwoLooks, DoesNotBlameThoseWhoseSnapshotIsOld) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  const RankSnapshot old = ranks.look()[0];
  TwoLooks looks;
  for (int64_t ms = 0; ms <= 5000; ms += 100) {
    auto now = ranks.look();
    now[0] = old;  // its publisher has died; the rank may have gone on
    EXPECT_FALSE(looks.look(now, ms * kMs)) << ms;
    ranks.pass(100 * kMs);
  }
}

TEST(TwoLooks, PublishersMayBeSlow) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  TwoLooks looks;
  std::vector<RankSnapshot> published = ranks.look();
  int64_t report = -1;
  for (int64_t ms = 0; ms <= 5000 && report < 0; ms += 100) {
    if (ms % 400 == 0) published = ranks.look();
    if (looks.look(published, ms * kMs)) report = ms;
    ranks.pass(100 * kMs);
  }
  EXPECT_GT(report, 0);
  EXPECT_LE(report, 1000);
}

TEST(TwoLooks, EntriesOverALongTimeDoNotAddUp) {
  Ranks ranks(2);
  TwoLooks looks;
  for (int64_t ms = 0; ms <= 6000; ms += 100) {
    ranks.pass(100 * kMs);
    const uint64_t a = ranks.wait(0, send(1));
    const uint64_t b = ranks.wait(1, send(0));
    EXPECT_FALSE(looks.look(ranks.look(), ms * kMs)) << ms;
    ranks[0].done(a);
    ranks[1].done(b);
  }
}

}  // namespace
}  // namespace lab::two_looks_test
