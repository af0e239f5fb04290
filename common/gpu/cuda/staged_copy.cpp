// Cutting a copy into pieces that fit a pinned buffer.
#include "common/gpu/cuda/staged_copy.h"

#include <algorithm>
#include <cstring>

#include "common/gpu/cuda/byte_count.h"
#include "common/gpu/cuda/check.h"

namespace lab::cuda {
namespace {

const char* bytes_of(const void* memory) { return static_cast<const char*>(memory); }
char* bytes_of(void* memory) { return static_cast<char*>(memory); }

/// Rows without gaps on both sides are one long row.
MemoryCopy as_few_rows(MemoryCopy copy) {
  if (copy.to_pitch == copy.width && copy.from_pitch == copy.width) {
    copy.width *= copy.rows;
    copy.rows = 1;
    copy.to_pitch = copy.width;
    copy.from_pitch = copy.width;
  }
  return copy;
}

/// Calls `body` with copies of at most StagedCopy::kBufferBytes each, which together are `whole`.
template <typename Body>
void for_each_piece(const MemoryCopy& whole, const Body& body) {
  const MemoryCopy copy = as_few_rows(whole);
  if (copy.width == 0) return;
  const size_t width = std::min(copy.width, StagedCopy::kBufferBytes);
  const size_t rows = StagedCopy::kBufferBytes / width;
  for (size_t r = 0; r < copy.rows; r += rows) {
    for (size_t c = 0; c < copy.width; c += width) {
      MemoryCopy piece = copy;
      piece.to = bytes_of(copy.to) + r * copy.to_pitch + c;
      piece.from = bytes_of(copy.from) + r * copy.from_pitch + c;
      piece.width = std::min(width, copy.width - c);
      piece.rows = std::min(rows, copy.rows - r);
      body(piece);
    }
  }
}

void copy_on_host(const MemoryCopy& copy) {
  for (size_t r = 0; r < copy.rows; ++r)
    std::memcpy(bytes_of(copy.to) + r * copy.to_pitch, bytes_of(copy.from) + r * copy.from_pitch,
                copy.width);
}

void start_copy(const MemoryCopy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
  const char* direction = kind == cudaMemcpyHostToDevice ? "to" : "from";
  const size_t bytes = copy.width * copy.rows;
  if (copy.rows == 1) {  // a piece of a long row: its pitch may be more than a copy of rows takes
    check(cudaMemcpyAsync(copy.to, copy.from, bytes, kind, stream), "cudaMemcpyAsync",
          "copying {} {} the GPU", byte_count(bytes), direction);
  } else {
    check(cudaMemcpy2DAsync(copy.to, copy.to_pitch, copy.from, copy.from_pitch, copy.width,
                            copy.rows, kind, stream),
          "cudaMemcpy2DAsync", "copying {} {} the GPU", byte_count(bytes), direction);
  }
}

}  // namespace

StagedCopy::StagedCopy(cudaStream_t stream) : stream_(stream) {
  for (Buffer& buffer : buffers_) {
    check(cudaMallocHost(&buffer.memory, kBufferBytes), "cudaMallocHost",
          "allocating {} of pinned memory for copies", byte_count(kBufferBytes));
    check(cudaEventCreateWithFlags(&buffer.finished, cudaEventDisableTiming),
          "cudaEventCreateWithFlags", "preparing copies");
  }
}

StagedCopy::~StagedCopy() {
  for (const Buffer& buffer : buffers_) {
    static_cast<void>(cudaEventDestroy(buffer.finished));
    static_cast<void>(cudaFreeHost(buffer.memory));
  }
}

StagedCopy::Buffer& StagedCopy::next_buffer() {
  next_ = 1 - next_;
  return buffers_[next_];
}

void StagedCopy::to_gpu(const MemoryCopy& copy) {
  const std::lock_guard lock(mutex_);
  for_each_piece(copy, [&](const MemoryCopy& piece) {
    Buffer& buffer = next_buffer();
    check(cudaEventSynchronize(buffer.finished), "cudaEventSynchronize",
          "waiting for an earlier copy");
    MemoryCopy fill = piece;
    fill.to = buffer.memory;
    fill.to_pitch = piece.width;
    copy_on_host(fill);
    MemoryCopy send = piece;
    send.from = buffer.memory;
    send.from_pitch = piece.width;
    start_copy(send, cudaMemcpyHostToDevice, stream_);
    check(cudaEventRecord(buffer.finished, stream_), "cudaEventRecord", "copying to the GPU");
  });
}

void StagedCopy::from_gpu(const MemoryCopy& copy) {
  const std::lock_guard lock(mutex_);
  Buffer* full = nullptr;  // on its way, or arrived
  MemoryCopy empty;        // how to empty it
  const auto finish = [&] {
    if (full == nullptr) return;
    check(cudaEventSynchronize(full->finished), "cudaEventSynchronize",
          "waiting for a copy from the GPU");
    copy_on_host(empty);
  };
  for_each_piece(copy, [&](const MemoryCopy& piece) {
    Buffer& buffer = next_buffer();  // the one that is not `full`
    MemoryCopy fetch = piece;
    fetch.to = buffer.memory;
    fetch.to_pitch = piece.width;
    start_copy(fetch, cudaMemcpyDeviceToHost, stream_);
    check(cudaEventRecord(buffer.finished, stream_), "cudaEventRecord", "copying from the GPU");
    finish();
    full = &buffer;
    empty = piece;
    empty.from = buffer.memory;
    empty.from_pitch = piece.width;
  });
  finish();
}

}  // namespace lab::cuda
