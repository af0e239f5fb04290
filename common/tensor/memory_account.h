// MemoryAccount: how much memory the tensors of one rank hold, and what for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "common/error.h"

namespace lab {

/// What the memory of a tensor is for.
enum class MemoryKind {
  kWeights,
  kGradients,
  kOptimizer,      // its state
  kActivations,    // all that a pass needs in proportion to its tokens
  kScratch,        // anything that has not been said to be something else
  kCommunication,  // copies of what is sent or received
};
inline constexpr size_t kMemoryKinds = 6;

/// "weights".
const char* name_of(MemoryKind kind);

/// Bytes of each kind.
using MemoryUse = std::array<int64_t, kMemoryKinds>;

/// An allocation would exceed the limit of the account.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Counts the bytes of tensors' elements exactly (an empty tensor counts as one element), from
/// allocation to release; views count nothing. Ranks of a simulation are threads of one process, so
/// an account belongs to the threads that have a CountMemory, not to the process. A tensor is
/// released from the account that it was counted in, by whichever thread.
class MemoryAccount {
 public:
  int64_t bytes() const;
  int64_t bytes(MemoryKind kind) const;
  /// The most there has been at any one moment: of all kinds together, of one kind, and of all but
  /// activations, which the number of tokens decides.
  int64_t peak() const;
  int64_t peak(MemoryKind kind) const;
  int64_t peak_without_activations() const;
  /// What it consisted of when peak() was reached.
  MemoryUse at_peak() const;
  /// Peaks start again from what there is now.
  void reset_peaks();

  /// From now on an allocation that would make more than this many bytes throws OutOfMemory, which
  /// says what the memory is used for; 0: no limit.
  void set_limit(int64_t bytes);

 private:
  friend class CountedMemory;
  void add(MemoryKind kind, int64_t bytes);
  void remove(MemoryKind kind, int64_t bytes);
  void note_peaks();

  mutable std::mutex mutex_;
  MemoryUse now_{};
  MemoryUse peaks_{};
  MemoryUse at_peak_{};
  int64_t peak_ = 0;
  int64_t peak_without_activations_ = 0;
  int64_t limit_ = 0;
};

/// "weights 4.0 MB, gradients 4.0 MB", the kinds that are not 0.
std::string in_words(const MemoryUse& use);

/// While it lives, tensors that this thread allocates are counted in `account`.
class CountMemory {
 public:
  explicit CountMemory(std::shared_ptr<MemoryAccount> account);
  ~CountMemory();
  CountMemory(const CountMemory&) = delete;
  CountMemory& operator=(const CountMemory&) = delete;

 private:
  std::shared_ptr<MemoryAccount> before_;
};

/// While it lives, what this thread allocates is of this kind.
class MemoryOf {
 public:
  explicit MemoryOf(MemoryKind kind);
  ~MemoryOf();
  MemoryOf(const MemoryOf&) = delete;
  MemoryOf& operator=(const MemoryOf&) = delete;

 private:
  MemoryKind before_;
};

/// For Tensor: its bytes, counted while this lives. Throws OutOfMemory.
class CountedMemory {
 public:
  explicit CountedMemory(size_t bytes);
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

 private:
  std::shared_ptr<MemoryAccount> account_;  // null: nobody counts
  MemoryKind kind_;
  int64_t bytes_;
};

}  // namespace lab
