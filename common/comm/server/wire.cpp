#include "common/comm/server/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "common/error.h"
#include "common/printable.h"

namespace lab {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 4> kMagic = {'L', 'B', 'P', 'S'};

struct Head {
  std::array<char, 4> magic = kMagic;
  uint32_t kind = 0;
  std::array<int64_t, 3> numbers = {};
  double loss = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Head) == 48);

}  // namespace

std::string encode(const Frame& frame) {
  const Head head{.kind = static_cast<uint32_t>(frame.kind),
                  .numbers = frame.numbers,
                  .loss = frame.loss,
                  .bytes = frame.payload.size()};
  std::string text(sizeof head, '\0');
  std::memcpy(text.data(), &head, sizeof head);
  return text + frame.payload;
}

std::optional<Frame> take_frame(std::string& buffer, uint64_t most_bytes) {
  Head head;
  if (buffer.size() < sizeof head) {
    const size_t shown = std::min(buffer.size(), kMagic.size());
    require(buffer.compare(0, shown, std::string(kMagic.data(), shown)) == 0,
            "the data is not from a parameter server or its workers");
    return {};
  }
  std::memcpy(&head, buffer.data(), sizeof head);
  require(head.magic == kMagic, "the data is not from a parameter server or its workers");
  require(head.kind >= static_cast<uint32_t>(Frame::Kind::kHello) &&
              head.kind <= static_cast<uint32_t>(Frame::Kind::kWait),
          "a frame of the unknown kind {}: another version of the workbook?", head.kind);
  require(head.bytes <= most_bytes, "a frame of {} bytes, expected at most {}", head.bytes,
          most_bytes);
  if (buffer.size() - sizeof head < head.bytes) return {};
  Frame frame{.kind = static_cast<Frame::Kind>(head.kind),
              .numbers = head.numbers,
              .loss = head.loss,
              .payload = buffer.substr(sizeof head, head.bytes)};
  buffer.erase(0, sizeof head + head.bytes);
  return frame;
}

std::string first_difference(const std::string& server, const std::string& worker) {
  std::istringstream a(server);
  std::istringstream b(worker);
  while (a && b) {
    std::string x, y;
    std::getline(a, x);
    std::getline(b, y);
    if (x != y)
      return fmt::format("the server has '{}', the worker '{}'", printable(x), printable(y));
  }
  return "nothing";
}

std::string to_payload(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data()), tensor.bytes()};
}

Tensor from_payload(const std::string& payload, int64_t elements) {
  require(payload.size() == static_cast<size_t>(elements) * sizeof(float),
          "a tensor of {} bytes, expected {} elements", payload.size(), elements);
  Tensor tensor = Tensor::empty({elements});
  std::memcpy(tensor.data(), payload.data(), payload.size());
  return tensor;
}

}  // namespace lab
