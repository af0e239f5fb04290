#include "common/tensor/parallel.h"

#include <omp.h>

#include <algorithm>

namespace lab {
namespace {

constexpr int kMostThreads = 1024;  // of --threads, too; the stacks of 100,000 fit no memory

}  // namespace

int thread_count() {
  make_threads_certain();
  return omp_get_max_threads();
}

void make_threads_certain() {
  if (omp_get_dynamic() != 0) omp_set_dynamic(0);
  if (omp_in_parallel() != 0) return omp_set_num_threads(1);  // of this thread, until the loop ends
  const int most = std::min(omp_get_thread_limit(), kMostThreads);
  if (omp_get_max_threads() > most) omp_set_num_threads(most);
}

void set_thread_count(int threads) {
  static const int at_start = thread_count();  // OMP_NUM_THREADS, or else all cores
  omp_set_num_threads(threads > 0 ? threads : at_start);
  make_threads_certain();
}

}  // namespace lab
