// A tensor's numbers in host memory, for transports that cannot reach GPU memory.
#pragma once

#include <span>

#include "common/tensor/tensor.h"

namespace lab {

/// What a message or collective moves in place of a tensor: the tensor itself if it is in host
/// memory, else a copy in pinned memory, as one would make by hand:
///
///     GPU A -> pinned memory of A -> network -> pinned memory of B -> GPU B
///
/// Both copies wait for the GPU, so what is sent has been computed, and what has been received may
/// be used at once.
class HostCopy {
 public:
  HostCopy() = default;
  /// `reaches_gpus`: the transport needs no copy.
  explicit HostCopy(const Tensor& tensor, bool reaches_gpus = false);

  /// What the transport reads or writes.
  std::span<float> numbers() const;
  /// Tensor to host: before a send, and where a collective reads.
  void load() const;
  /// Host to tensor: after a recv, and where a collective writes.
  void store() const;

 private:
  Tensor tensor_;
  Tensor host_;  // undefined where no copy is needed
};

}  // namespace lab
