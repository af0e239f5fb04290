#include "common/tensor/memory_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace lab {
namespace {

thread_local std::shared_ptr<MemoryAccount> counting;  // null: nobody counts
thread_local MemoryKind counted_kind = MemoryKind::kScratch;

int64_t sum(const MemoryUse& use) { return std::accumulate(use.begin(), use.end(), int64_t{0}); }

int64_t& of(MemoryUse& use, MemoryKind kind) { return use[static_cast<size_t>(kind)]; }

double megabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace

const char* name_of(MemoryKind kind) {
  static constexpr const char* kNames[kMemoryKinds] = {"weights",     "gradients", "optimizer",
                                                       "activations", "scratch",   "communication"};
  return kNames[static_cast<size_t>(kind)];
}

std::string in_words(const MemoryUse& use) {
  std::string text;
  for (size_t kind = 0; kind < use.size(); ++kind)
    if (use[kind] != 0)
      text += fmt::format("{}{} {:.1f} MB", text.empty() ? "" : ", ",
                          name_of(static_cast<MemoryKind>(kind)), megabytes(use[kind]));
  return text.empty() ? "nothing" : text;
}

int64_t MemoryAccount::bytes() const {
  const std::lock_guard lock(mutex_);
  return sum(now_);
}

int64_t MemoryAccount::bytes(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return now_[static_cast<size_t>(kind)];
}

int64_t MemoryAccount::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

int64_t MemoryAccount::peak(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return peaks_[static_cast<size_t>(kind)];
}

int64_t MemoryAccount::peak_without_activations() const {
  const std::lock_guard lock(mutex_);
  return peak_without_activations_;
}

MemoryUse MemoryAccount::at_peak() const {
  const std::lock_guard lock(mutex_);
  return at_peak_;
}

void MemoryAccount::reset_peaks() {
  const std::lock_guard lock(mutex_);
  peaks_ = {};
  peak_ = peak_without_activations_ = 0;
  note_peaks();
}

void MemoryAccount::set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

void MemoryAccount::add(MemoryKind kind, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (limit_ > 0 && sum(now_) + bytes > limit_)
    throw OutOfMemory(
        fmt::format("out of memory: {:.1f} MB more for {} would exceed the limit of {:.1f} MB; in "
                    "use: {}",
                    megabytes(bytes), name_of(kind), megabytes(limit_), in_words(now_)));
  of(now_, kind) += bytes;
  note_peaks();
}

void MemoryAccount::remove(MemoryKind kind, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  of(now_, kind) -= bytes;
}

void MemoryAccount::note_peaks() {
  for (size_t kind = 0; kind < kMemoryKinds; ++kind)
    peaks_[kind] = std::max(peaks_[kind], now_[kind]);
  const int64_t all = sum(now_);
  if (all >= peak_) at_peak_ = now_;
  peak_ = std::max(peak_, all);
  peak_without_activations_ =
      std::max(peak_without_activations_, all - of(now_, MemoryKind::kActivations));
}

CountMemory::CountMemory(std::shared_ptr<MemoryAccount> account)
    : before_(std::exchange(counting, std::move(account))) {}
CountMemory::~CountMemory() { counting = std::move(before_); }

MemoryOf::MemoryOf(MemoryKind kind) : before_(std::exchange(counted_kind, kind)) {}
MemoryOf::~MemoryOf() { counted_kind = before_; }

CountedMemory::CountedMemory(size_t bytes)
    : account_(counting), kind_(counted_kind), bytes_(static_cast<int64_t>(bytes)) {
  if (account_) account_->add(kind_, bytes_);
}
CountedMemory::~CountedMemory() {
  if (account_) account_->remove(kind_, bytes_);
}

}  // namespace lab
