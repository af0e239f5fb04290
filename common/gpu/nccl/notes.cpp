#include "common/gpu/nccl/notes.h"

#include "common/gpu/cuda/check.h"
#include "common/tensor/accelerator.h"

namespace lab::nccl {
namespace {

constexpr size_t kNotesOfASlab = 128;

void copy(NoteText* to, const NoteText* from, cudaMemcpyKind kind, cudaStream_t stream) {
  cuda::check(cudaMemcpyAsync(to, from, sizeof(NoteText), kind, stream), "cudaMemcpyAsync",
              "exchanging a note between GPUs");
}

}  // namespace

void Note::send_own_to_gpu(cudaStream_t stream) const {
  copy(gpu_own, host_own, cudaMemcpyHostToDevice, stream);
}

void Note::fetch_other_from_gpu(cudaStream_t stream) const {
  copy(host_other, gpu_other, cudaMemcpyDeviceToHost, stream);
}

Notes::~Notes() {
  for (const Slab& slab : slabs_) {
    accelerator().release(slab.gpu);
    accelerator().release_pinned(slab.host);
  }
}

Note Notes::take() {
  if (free_.empty()) add_slab();
  const Note note = free_.back();
  free_.pop_back();
  return note;
}

void Notes::add_slab() {
  constexpr size_t kBytes = 2 * kNotesOfASlab * sizeof(NoteText);
  Slab& slab = slabs_.emplace_back();
  slab.host = static_cast<NoteText*>(accelerator().allocate_pinned(kBytes));
  slab.gpu = static_cast<NoteText*>(accelerator().allocate(kBytes));
  for (size_t i = 0; i < kNotesOfASlab; ++i) {
    const size_t own = 2 * i;
    const size_t other = 2 * i + 1;
    free_.push_back({slab.host + own, slab.host + other, slab.gpu + own, slab.gpu + other});
  }
}

}  // namespace lab::nccl
