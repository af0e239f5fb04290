#include "common/tensor/parallel.h"

#include <omp.h>

namespace lab {

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int threads) {
  omp_set_num_threads(threads > 0 ? threads : omp_get_num_procs());
}

}  // namespace lab
