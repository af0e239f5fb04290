// Ranks with flight recorders, whose operations a test makes up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/diagnosis/flight_recorder.h"

namespace lab {

inline constexpr int64_t kMs = 1'000'000;

/// Ranks with separate recorders, looked at whenever a test likes.
class Ranks {
 public:
  explicit Ranks(int size) : fates_(static_cast<size_t>(size)), status_(fates_.size()) {
    for (int rank = 0; rank < size; ++rank) {
      recorders_.push_back(std::make_unique<FlightRecorder>(rank, [this] { return now_; }));
      recorders_.back()->add_group(0, (uint64_t{1} << size) - 1, "world");
      fates_[static_cast<size_t>(rank)] = RankFate::kRunning;
    }
  }

  FlightRecorder& operator[](int rank) { return *recorders_[static_cast<size_t>(rank)]; }

  uint64_t wait(int rank, const OpRecord& op) {
    const uint64_t id = (*this)[rank].posted(op);
    (*this)[rank].waiting(id);
    return id;
  }
  void whole(int rank, const OpRecord& op) { (*this)[rank].done(wait(rank, op)); }
  void set_fate(int rank, RankFate fate, int status = 0) {
    fates_[static_cast<size_t>(rank)] = fate;
    status_[static_cast<size_t>(rank)] = status;
  }
  void pass(int64_t ns) { now_ += ns; }

  std::vector<RankSnapshot> look() const {
    std::vector<RankSnapshot> all;
    for (size_t rank = 0; rank < recorders_.size(); ++rank) {
      all.push_back(recorders_[rank]->snapshot());
      all.back().pid = 100 + static_cast<int64_t>(rank);
      all.back().fate = fates_[rank];
      all.back().status = status_[rank];
    }
    return all;
  }
  /// Looks twice, 1.2 s apart.
  std::optional<Diagnosis> diagnose_twice() {
    const std::vector<RankSnapshot> before = look();
    pass(1200 * kMs);
    return diagnose(before, look());
  }
  /// "nothing", or what was found.
  std::string found() {
    const auto diagnosis = diagnose_twice();
    return diagnosis ? diagnosis->headline : "nothing";
  }

 private:
  int64_t now_ = 1000 * kMs;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::vector<RankFate> fates_;
  std::vector<int> status_;
};

inline OpRecord send(int to, int tag = 0, uint64_t bytes = 1024, uint64_t sequence = 0) {
  return {.kind = OpKind::kSend, .peer = to, .tag = tag, .bytes = bytes, .sequence = sequence};
}
inline OpRecord recv(int from, int tag = 0, uint64_t bytes = 1024, uint64_t sequence = 0) {
  return {.kind = OpKind::kRecv, .peer = from, .tag = tag, .bytes = bytes, .sequence = sequence};
}
inline OpRecord collective(OpKind kind, uint64_t sequence, uint64_t bytes = 0, int root = -1) {
  return {.kind = kind, .peer = root, .bytes = bytes, .sequence = sequence};
}

}  // namespace lab
