// Notes: a few bytes that ranks exchange along with the data, to check that they agree.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lab::nccl {

/// Two numbers.
struct NoteText {
  uint64_t words[2] = {};
  bool operator==(const NoteText&) const = default;
};

/// Where a note is written (`own`) and where the answer arrives (`other`): on the host in pinned
/// memory, which the GPU can copy, and on the GPU, where NCCL reads and writes.
struct Note {
  NoteText* host_own = nullptr;
  NoteText* host_other = nullptr;
  NoteText* gpu_own = nullptr;
  NoteText* gpu_other = nullptr;

  /// Copies, in the order of the stream.
  void send_own_to_gpu(cudaStream_t stream) const;
  void fetch_other_from_gpu(cudaStream_t stream) const;
};

/// Allocated many at a time and reused: pinned memory is slow to allocate, and freeing it may wait
/// for the GPU, which may be waiting for another rank.
class Notes {
 public:
  Notes() = default;
  ~Notes();
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  Note take();
  /// The GPU must be done with it.
  void give_back(const Note& note) { free_.push_back(note); }

 private:
  void add_slab();

  struct Slab {
    NoteText* host;
    NoteText* gpu;
  };
  std::vector<Slab> slabs_;
  std::vector<Note> free_;
};

}  // namespace lab::nccl
