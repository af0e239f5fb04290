// Replaces NCCL in a build without it.
#include "common/comm/nccl_transport.h"
#include "common/error.h"

namespace lab {

std::string nccl_problem() {
  return "this build has no NCCL: install libnccl-dev beside the CUDA Toolkit and configure again "
         "(./workbook setup), or use --comm gloo";
}

void prepare_for_nccl() {}

std::unique_ptr<Transport> connect_nccl(const NcclOptions& /*options*/, Store& /*store*/) {
  fail("{}", nccl_problem());
}

}  // namespace lab
