// Diagnoses of thousands of random programs: never one that is wrong, always one that is right.
//
// The model of a job: a program is a list of actions a rank; messages have no buffers, collectives
// wait for all members. Its ranks take turns in any order, entry by entry.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/diagnosis/flight_recorder.h"

namespace lab::diagnosis_property_test {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<uint64_t>(limit)); }
  bool once_in(int n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

/// Post an operation, wait for one that was posted, or compute.
struct Action {
  enum class Kind { kPost, kWait, kCompute };
  Kind kind = Kind::kCompute;
  OpRecord op;     // kPost; `sequence` is counted when it is posted
  int number = 0;  // kPost, kWait: which operation of this rank
};
using Program = std::vector<Action>;

constexpr uint32_t kSubGroup = 7;

/// Programs that cannot get stuck: operations have one order for all ranks, in which they are
/// posted; an operation is waited for at once or, if it is a message, later.
std::vector<Program> correct_programs(int size, int operations, Random& random) {
  std::vector<Program> programs(static_cast<size_t>(size));
  std::vector<std::vector<int>> open(programs.size());
  std::vector<int> numbers(programs.size());
  const auto add = [&](int rank, const OpRecord& op) {
    const auto r = static_cast<size_t>(rank);
    const int number = numbers[r]++;
    if (random.once_in(3)) programs[r].push_back({});
    programs[r].push_back({Action::Kind::kPost, op, number});
    if (is_collective(op.kind) || random.once_in(2))
      programs[r].push_back({Action::Kind::kWait, {}, number});
    else
      open[r].push_back(number);
    while (!open[r].empty() && random.once_in(3)) {
      const auto which = open[r].begin() + random.below(static_cast<int>(open[r].size()));
      programs[r].push_back({Action::Kind::kWait, {}, *which});
      open[r].erase(which);
    }
  };
  for (int i = 0; i < operations; ++i) {
    const uint64_t bytes = 4 * static_cast<uint64_t>(1 + random.below(3));
    if (random.once_in(4)) {
      const bool sub = size > 2 && random.once_in(2);  // of all but the last
      const bool root = random.once_in(2);
      const OpRecord op{.kind = root ? OpKind::kBroadcast : OpKind::kAllReduce,
                        .group = sub ? kSubGroup : 0,
                        .peer = root ? 0 : -1,
                        .bytes = bytes};
      for (int rank = 0; rank < size - (sub ? 1 : 0); ++rank) add(rank, op);
      continue;
    }
    const int from = random.below(size);
    const int to = (from + 1 + random.below(size - 1)) % size;
    const int tag = random.below(3);
    add(from, {.kind = OpKind::kSend, .peer = to, .tag = tag, .bytes = bytes});
    add(to, {.kind = OpKind::kRecv, .peer = from, .tag = tag, .bytes = bytes});
  }
  for (size_t r = 0; r < programs.size(); ++r)
    for (int number : open[r]) programs[r].push_back({Action::Kind::kWait, {}, number});
  return programs;
}

/// A mistake of the kind that students make.
void spoil(std::vector<Program>& programs, Random& random) {
  Program& program = programs[static_cast<size_t>(random.below(static_cast<int>(programs.size())))];
  if (program.size() < 2) return;
  const size_t at = static_cast<size_t>(random.below(static_cast<int>(program.size()) - 1));
  OpRecord& op = program[at].op;
  switch (random.below(5)) {
    case 0:
      std::swap(program[at], program[at + 1]);
      break;
    case 1:
      program.erase(program.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      op.bytes += 4;
      break;
    case 3:
      op.tag = 1 - op.tag;
      break;
    default:
      program.resize(at);
  }
}

class Model {
 public:
  Model(std::vector<Program> programs, Random& random)
      : random_(random), programs_(std::move(programs)), ranks_(programs_.size()) {
    const int size = static_cast<int>(ranks_.size());
    for (int r = 0; r < size; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      rank.recorder = std::make_unique<FlightRecorder>(r);
      rank.recorder->add_group(0, (uint64_t{1} << size) - 1, "world");
      if (r + 1 < size)
        rank.recorder->add_group(kSubGroup, (uint64_t{1} << (size - 1)) - 1, "all but one");
    }
  }

  /// One entry of one rank. False if it cannot go on.
  bool step(int r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const Program& program = programs_[static_cast<size_t>(r)];
    if (rank.ended) return false;
    if (rank.next == program.size()) {
      if (!rank.left)
        rank.recorder->leave();
      else
        rank.ended = true;
      rank.left = true;
      return true;
    }
    const Action& action = program[rank.next];
    if (action.kind == Action::Kind::kWait) return wait(rank, r, action.number);
    if (action.kind == Action::Kind::kPost)
      post(rank, action);
    else
      compute(rank);
    ++rank.next;
    return true;
  }

  /// Up to `steps` steps of ranks drawn at random; some ranks may sleep meanwhile.
  void run(int steps) {
    std::vector<int> awake;
    for (int r = 0; r < size(); ++r)
      if (!random_.once_in(3)) awake.push_back(r);
    for (int i = 0; i < steps && !awake.empty(); ++i)
      step(awake[static_cast<size_t>(random_.below(static_cast<int>(awake.size())))]);
  }

  /// Until no rank can go on. True if all have ended.
  bool run_to_the_end() {
    for (bool any = true; any;) {
      any = false;
      for (int r = 0; r < size(); ++r) any |= step(r);
    }
    return std::ranges::all_of(ranks_, &Rank::ended);
  }

  /// Of all ranks, but not at one moment.
  std::vector<RankSnapshot> look(bool moving) {
    std::vector<RankSnapshot> all(ranks_.size());
    std::vector<int> order;
    for (int r = 0; r < size(); ++r) order.insert(order.begin() + random_.below(r + 1), r);
    for (int r : order) {
      if (moving) run(random_.below(4));
      const Rank& rank = ranks_[static_cast<size_t>(r)];
      RankSnapshot snapshot = rank.recorder->snapshot();
      snapshot.fate = rank.ended ? RankFate::kExited : RankFate::kRunning;
      all[static_cast<size_t>(r)] = decode_snapshot(encode_snapshot(snapshot));
    }
    return all;
  }

  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  struct Posted {
    int number = 0;
    OpRecord op;
    uint64_t id = 0;
    bool done = false;
  };
  struct Rank {
    std::unique_ptr<FlightRecorder> recorder;
    std::vector<Posted> posted;
    size_t next = 0;
    bool waiting = false;
    bool left = false;
    bool ended = false;
  };

  static bool same_stream(const OpRecord& a, const OpRecord& b) {
    return a.group == b.group && a.tag == b.tag && a.peer == b.peer && a.kind == b.kind;
  }

  static void post(Rank& rank, const Action& action) {
    OpRecord op = action.op;
    const auto alike = std::ranges::count_if(rank.posted, [&](const Posted& other) {
      return is_message(op.kind) ? same_stream(other.op, op)
                                 : is_collective(other.op.kind) && other.op.group == op.group;
    });
    op.sequence = static_cast<uint64_t>(alike) + (is_collective(op.kind) ? 1 : 0);
    rank.posted.push_back({action.number, op, rank.recorder->posted(op)});
  }

  static void compute(Rank& rank) {
    rank.recorder->done(rank.recorder->posted({.kind = OpKind::kForward}));
  }

  bool wait(Rank& rank, int r, int number) {
    const auto found = std::ranges::find(rank.posted, number, &Posted::number);
    if (found == rank.posted.end()) {  // its post was spoiled away, or comes later
      ++rank.next;
      return true;
    }
    if (!rank.waiting) {
      rank.recorder->waiting(found->id);
      rank.waiting = true;
      return true;
    }
    if (!complete(r, found->op)) return false;
    rank.recorder->done(found->id);
    found->done = true;
    rank.waiting = false;
    ++rank.next;
    return true;
  }

  /// The other sides have posted their parts, and have not left in the middle of them.
  bool complete(int r, const OpRecord& op) const {
    const auto has = [&](int other, const auto& matches) {
      const Rank& rank = ranks_[static_cast<size_t>(other)];
      return std::ranges::any_of(rank.posted, [&](const Posted& posted) {
        return matches(posted.op) && (posted.done || !rank.left);
      });
    };
    if (is_message(op.kind)) {
      const OpKind kind = op.kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend;
      return has(op.peer, [&](const OpRecord& other) {
        return other.kind == kind && other.peer == r && other.group == op.group &&
               other.tag == op.tag && other.sequence == op.sequence && other.bytes == op.bytes;
      });
    }
    for (int other = 0; other < size() - (op.group == kSubGroup ? 1 : 0); ++other)
      if (!has(other, [&](const OpRecord& its) {
            return its.kind == op.kind && its.group == op.group && its.sequence == op.sequence &&
                   its.bytes == op.bytes && its.peer == op.peer && its.tag == op.tag;
          }))
        return false;
    return true;
  }

  Random& random_;
  std::vector<Program> programs_;
  std::vector<Rank> ranks_;
};

TEST(DiagnosisProperty, CorrectProgramsAreNeverReported) {
  int looks = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    const int size = 2 + random.below(5);
    Model model(correct_programs(size, 5 + random.below(40), random), random);
    for (int i = 0; i < 12; ++i, ++looks) {
      model.run(random.below(30));
      const auto before = model.look(true);
      model.run(random.below(3) * random.below(20));
      const auto diagnosis = diagnose(before, model.look(true));
      ASSERT_FALSE(diagnosis) << "seed " << seed << "\n" << diagnosis->text();
    }
    ASSERT_TRUE(model.run_to_the_end()) << "seed " << seed << ": the program is not correct";
    const auto at_end = model.look(false);
    ASSERT_FALSE(diagnose(at_end, at_end)) << "seed " << seed;
  }
  EXPECT_EQ(looks, 18000);
}

TEST(DiagnosisProperty, StuckProgramsAreAlwaysReported) {
  std::vector<int> found(5);
  int stuck = 0;
  for (uint64_t seed = 0; seed < 2500; ++seed) {
    Random random(seed + 1'000'000);
    const int size = 2 + random.below(5);
    std::vector<Program> programs = correct_programs(size, 5 + random.below(30), random);
    for (int mistakes = 1 + random.below(2); mistakes > 0; --mistakes) spoil(programs, random);
    Model model(std::move(programs), random);
    model.run(random.below(200));
    const bool ended = model.run_to_the_end();
    const auto before = model.look(false);
    const auto diagnosis = diagnose(before, model.look(false));
    ASSERT_EQ(diagnosis.has_value(), !ended)
        << "seed " << seed << (diagnosis ? diagnosis->text() : "");
    if (ended) continue;
    ++stuck;
    ++found[static_cast<size_t>(diagnosis->kind)];
    ASSERT_FALSE(diagnosis->ranks.empty());
  }
  EXPECT_GT(stuck, 500);
  EXPECT_GT(found[static_cast<size_t>(Diagnosis::Kind::kDeadlock)], 50);
  EXPECT_GT(found[static_cast<size_t>(Diagnosis::Kind::kMismatch)], 50);
  EXPECT_GT(found[static_cast<size_t>(Diagnosis::Kind::kRankEnded)], 50);
}

/// While ranks still move, a report must be one of a job that ends stuck.
TEST(DiagnosisProperty, EarlyReportsComeTrue) {
  int early = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed + 2'000'000);
    const int size = 3 + random.below(4);
    std::vector<Program> programs = correct_programs(size, 10 + random.below(30), random);
    spoil(programs, random);
    Model model(std::move(programs), random);
    std::optional<Diagnosis> report;
    for (int i = 0; i < 10 && !report; ++i) {
      model.run(random.below(60));
      const auto before = model.look(true);
      model.run(random.below(20));
      report = diagnose(before, model.look(true));
    }
    if (!report) continue;
    ++early;
    ASSERT_FALSE(model.run_to_the_end()) << "seed " << seed << "\n" << report->text();
  }
  EXPECT_GT(early, 100);
}

}  // namespace
}  // namespace lab::diagnosis_property_test
