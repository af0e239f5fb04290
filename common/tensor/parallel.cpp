#include "common/tensor/parallel.h"

#include <omp.h>

namespace lab {

int thread_count() {
  make_threads_certain();
  return omp_get_max_threads();
}

void make_threads_certain() {
  if (omp_get_dynamic() != 0) omp_set_dynamic(0);
  if (omp_get_max_threads() > omp_get_thread_limit()) omp_set_num_threads(omp_get_thread_limit());
}

void set_thread_count(int threads) {
  static const int at_start = thread_count();  // OMP_NUM_THREADS, or else all cores
  omp_set_num_threads(threads > 0 ? threads : at_start);
  make_threads_certain();
}

}  // namespace lab
