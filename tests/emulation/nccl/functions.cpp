// The collectives and messages of NCCL's interface.
#include "tests/emulation/nccl/communicators.h"

using namespace lab::emulation::nccl;

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream,
             {.kind = Kind::kSend, .input = data, .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream,
             {.kind = Kind::kRecv, .output = data, .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream, {Kind::kBroadcast, input, output, count, type, ncclSum, root});
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream, {Kind::kReduce, input, output, count, type, op, root});
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream, {Kind::kAllReduce, input, output, count, type, op});
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream, {Kind::kAllGather, input, output, count, type});
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  return add(communicator, stream, {Kind::kReduceScatter, input, output, count, type, op});
}
