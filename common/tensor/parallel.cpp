#include "common/tensor/parallel.h"

#include <omp.h>

namespace lab {

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int threads) {
  static const int at_start = omp_get_max_threads();  // OMP_NUM_THREADS, or else all cores
  omp_set_num_threads(threads > 0 ? threads : at_start);
}

}  // namespace lab
