// The frames that a parameter server and its workers exchange over TCP.
//
//   "LBPS"  u32 kind  i64 numbers[3]  f64 loss  u64 bytes of the payload  payload
//
// Little-endian, as the numbers of the tensors in the payload.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "common/tensor/tensor.h"

namespace lab {

struct Frame {
  enum class Kind : uint32_t {
    kHello = 1,  // worker: its number, or -1; 1 if it has lost a connection under this number and
                 // accepts another number; what it will compute, as text
    kWelcome,    // server: the worker's number
    kRefused,    // server: what must be computed instead, as text
    kPull,
    kPush,  // ticket, samples; loss; the gradient
    kWork,  // ticket, item, version; the weights
    kTaken,
    kDone,
    kWait,  // server, from time to time: alive, but no answer yet
  };
  Kind kind = Kind::kWait;
  std::array<int64_t, 3> numbers = {};
  double loss = 0;
  std::string payload = {};
};

/// The most bytes of a payload that is text.
inline constexpr uint64_t kMostText = 16 * 1024;

std::string encode(const Frame& frame);

/// Takes the first frame from the front of `buffer`; nothing if it is not complete yet. Throws
/// Error as soon as the head has arrived if it is not that of a frame, or announces a payload above
/// `most_bytes`.
std::optional<Frame> take_frame(std::string& buffer, uint64_t most_bytes);

/// The first line in which the descriptions of what server and worker compute differ, as a message.
std::string first_difference(const std::string& server, const std::string& worker);

/// A flat tensor as a payload, and back. Throws Error unless it has exactly `elements`.
std::string to_payload(const Tensor& tensor);
Tensor from_payload(const std::string& payload, int64_t elements);

}  // namespace lab
