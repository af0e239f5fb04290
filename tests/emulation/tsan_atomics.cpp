// std::atomic and static variables with guards in instrumented host code: -fsanitize=thread turns
// their operations into these calls. They do what they say, and check nothing.
#include <cstdint>

namespace {

constexpr int kOrder = __ATOMIC_SEQ_CST;

}  // namespace

// The names and types are the compiler's; only a macro can write a family of them.
// NOLINTBEGIN(bugprone-macro-parentheses,readability-identifier-naming)
#define LAB_TSAN_ATOMICS(bits, T)                                                               \
  T __tsan_atomic##bits##_load(const volatile T* a, int) { return __atomic_load_n(a, kOrder); } \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) { __atomic_store_n(a, v, kOrder); } \
  T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                                   \
    return __atomic_exchange_n(a, v, kOrder);                                                   \
  }                                                                                             \
  T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                                  \
    return __atomic_fetch_add(a, v, kOrder);                                                    \
  }                                                                                             \
  T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                                  \
    return __atomic_fetch_sub(a, v, kOrder);                                                    \
  }                                                                                             \
  T __tsan_atomic##bits##_fetch_and(volatile T* a, T v, int) {                                  \
    return __atomic_fetch_and(a, v, kOrder);                                                    \
  }                                                                                             \
  T __tsan_atomic##bits##_fetch_or(volatile T* a, T v, int) {                                   \
    return __atomic_fetch_or(a, v, kOrder);                                                     \
  }                                                                                             \
  T __tsan_atomic##bits##_fetch_xor(volatile T* a, T v, int) {                                  \
    return __atomic_fetch_xor(a, v, kOrder);                                                    \
  }                                                                                             \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* e, T v, int, int) {      \
    return __atomic_compare_exchange_n(a, e, v, false, kOrder, kOrder);                         \
  }                                                                                             \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* e, T v, int, int) {        \
    return __atomic_compare_exchange_n(a, e, v, false, kOrder, kOrder);                         \
  }

extern "C" {
LAB_TSAN_ATOMICS(8, uint8_t)
LAB_TSAN_ATOMICS(16, uint16_t)
LAB_TSAN_ATOMICS(32, uint32_t)
LAB_TSAN_ATOMICS(64, uint64_t)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(kOrder); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(kOrder); }
}
// NOLINTEND(bugprone-macro-parentheses,readability-identifier-naming)
