// Loops over all cores of this process, and vector-friendly helpers for their bodies.
#pragma once

#include <cstdint>
#include <exception>

namespace lab {

/// Number of threads that parallel loops and matrix products of this process use.
int thread_count();

/// Sets it; 0 restores the number the process was started with: OMP_NUM_THREADS, which the launcher
/// sets to a rank's part of the cores, or all cores this process may run on. Results are
/// reproducible bit for bit only with the same number of threads.
void set_thread_count(int threads);

/// Makes OpenMP give the calling thread as many threads as it announces, whatever OMP_THREAD_LIMIT
/// and OMP_DYNAMIC say, and makes it announce, within a parallel loop, the one thread that it
/// gives. oneDNN divides a product among the threads announced; with fewer of them, some elements
/// would not be computed.
void make_threads_certain();

/// Calls body(i) for every i in [begin, end), on all threads, in contiguous blocks of equal length.
/// Which thread computes an index never changes the result, so results do not depend on timing.
/// Inside another parallel loop it runs on the calling thread. If `body` throws, the first
/// exception is thrown again when all threads are done.
template <typename Body>
void parallel_for(int64_t begin, int64_t end, const Body& body) {
  std::exception_ptr failure;  // an exception must not leave an OpenMP loop
#pragma omp parallel for schedule(static) if (end - begin > 1)
  for (int64_t i = begin; i < end; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(lab_parallel_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Cuts [0, count) into blocks of `block` elements and calls body(first, last) for each, on all
/// threads: for element-wise work, where a call per element would cost more than the work itself.
template <typename Body>
void parallel_blocks(int64_t count, int64_t block, const Body& body) {
  const int64_t blocks = (count + block - 1) / block;
  parallel_for(0, blocks, [&](int64_t b) {
    const int64_t first = b * block;
    body(first, first + block < count ? first + block : count);
  });
}

}  // namespace lab
