// The functions of NCCL that the workbook calls (see library.h).
#include "common/gpu/on_demand/library.h"

#pragma GCC visibility push(hidden)  // or NCCL might call these instead of its own
#include <nccl.h>
#pragma GCC visibility pop
#include <fmt/format.h>

namespace {

template <typename Result = ncclResult_t, typename... Args>
Result pass_on(const char* function, Args... args) {
  static const lab::on_demand::Library library(
      fmt::format("libnccl.so.{}", NCCL_MAJOR), LAB_NCCL_FOLDER,
      "install NCCL, or name the folder of this library in LD_LIBRARY_PATH, or use --comm gloo");
  return library.call<Result>(function, args...);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) { return pass_on(__func__, version); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return pass_on(__func__, id); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return pass_on(__func__, communicator, size, id, rank, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) { return pass_on(__func__, communicator); }

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return pass_on(__func__, communicator); }

ncclResult_t ncclCommAbort(ncclComm_t communicator) { return pass_on(__func__, communicator); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  return pass_on(__func__, communicator, state);
}

const char* ncclGetErrorString(ncclResult_t result) {
  return pass_on<const char*>(__func__, result);
}

const char* ncclGetLastError(ncclComm_t communicator) {
  return pass_on<const char*>(__func__, communicator);
}

ncclResult_t ncclGroupStart() { return pass_on(__func__); }

ncclResult_t ncclGroupEnd() { return pass_on(__func__); }

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, data, count, type, peer, communicator, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, data, count, type, peer, communicator, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, input, output, count, type, root, communicator, stream);
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, input, output, count, type, op, root, communicator, stream);
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, input, output, count, type, op, communicator, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, input, output, count, type, op, communicator, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return pass_on(__func__, input, output, count, type, communicator, stream);
}
