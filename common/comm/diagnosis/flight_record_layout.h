// FlightRecordLayout: how a flight record is laid out, in memory and in its file.
//
// One process writes, others read at any time. `version` is odd while an entry is being written: a
// reader copies, and copies again if `version` has changed. All of it consists of atomic words:
// writers release them after the odd version, readers acquire them before they check the version
// again, so that a reader that sees any part of an entry also sees its version.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

/// A plain value in memory that other processes may read at any time.
template <typename T>
class Shared {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

  void store(const T& value) {
    std::array<uint64_t, kWords> copy;
    std::memcpy(copy.data(), &value, sizeof value);
    for (size_t i = 0; i < kWords; ++i) words_[i].store(copy[i], std::memory_order_release);
  }
  T load() const {
    std::array<uint64_t, kWords> copy;
    for (size_t i = 0; i < kWords; ++i) copy[i] = words_[i].load(std::memory_order_acquire);
    T value;
    std::memcpy(static_cast<void*>(&value), copy.data(), sizeof value);
    return value;
  }

 private:
  static constexpr size_t kWords = sizeof(T) / 8;
  std::array<std::atomic<uint64_t>, kWords> words_;
};

struct FlightRecordLayout {
  static constexpr uint64_t kMagic = 0x3230434552'42414c;  // "LABREC02"
  static constexpr size_t kHistory = 16384;

  struct Head {
    int64_t rank = 0;
    int64_t pid = 0;
    uint64_t left = 0;
  };
  struct Group {
    uint64_t id = 0;
    uint64_t members = 0;
    uint64_t collectives = 0;
    std::array<char, kMaxGroupName + 1> name{};
  };

  Shared<uint64_t> magic;
  std::atomic<uint64_t> version;  // twice the number of entries, plus 1 while one is being written
  Shared<Head> head;
  std::array<Shared<Traffic>, kOpKinds> traffic;
  Shared<uint64_t> group_count;
  std::array<Shared<Group>, kMaxGroups> groups;
  std::array<Shared<uint64_t>, kMaxPending / 64> used;  // bit i: pending[i] is in use
  std::array<Shared<OpRecord>, kMaxPending> pending;
  Shared<uint64_t> recent_count;
  std::array<Shared<OpRecord>, kMaxRecent> recent;  // one per stream
  Shared<uint64_t> history_count;                   // so far; number n is at n % kHistory
  std::array<Shared<OpRecord>, kHistory> history;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// What the record says, even if it is damaged: bad entries are left out. Retries while entries are
/// being written, but not forever: the writer may have died in the middle of one. `taken_ns` and
/// `fate` are not filled in.
RankSnapshot copy_snapshot(const FlightRecordLayout& record);
std::vector<OpRecord> copy_history(const FlightRecordLayout& record);

}  // namespace lab
