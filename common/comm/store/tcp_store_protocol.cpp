// Bytes from messages and back.
#include "common/comm/store/tcp_store_protocol.h"

#include "common/comm/store/store.h"
#include "common/error.h"

namespace lab::tcp_store {
namespace {

constexpr size_t kHeaderSize = 9;

template <typename Number>
void put(std::string& bytes, Number number) {
  for (size_t i = sizeof(Number); i-- > 0;) bytes += static_cast<char>((number >> (8 * i)) & 0xff);
}

template <typename Number>
Number number_at(std::string_view bytes, size_t offset) {
  Number number = 0;
  for (const char c : bytes.substr(offset, sizeof(Number)))
    number = (number << 8) | static_cast<unsigned char>(c);
  return number;
}

}  // namespace

std::string greeting(std::string_view magic, uint32_t version) {
  std::string bytes(magic);
  put(bytes, version);
  return bytes;
}

uint32_t greeting_version(std::string_view greeting) {
  return number_at<uint32_t>(greeting, kClientMagic.size());
}

std::string encode_identity(uint64_t identity) {
  std::string bytes;
  put(bytes, identity);
  return bytes;
}

uint64_t decode_identity(std::string_view bytes) { return number_at<uint64_t>(bytes, 0); }

std::string encode(const Message& message) {
  std::string bytes(1, static_cast<char>(message.kind));
  put(bytes, static_cast<uint32_t>(message.key.size()));
  put(bytes, static_cast<uint32_t>(message.value.size()));
  return bytes + message.key + message.value;
}

std::optional<Message> take_message(std::string& buffer) {
  if (buffer.empty()) return std::nullopt;
  const auto kind = static_cast<Kind>(buffer[0]);
  require(kind >= Kind::kSet && kind <= Kind::kRefused, "there is no message of kind {}",
          static_cast<int>(kind));
  if (buffer.size() < kHeaderSize) return std::nullopt;
  const size_t key = number_at<uint32_t>(buffer, 1);
  const size_t value = number_at<uint32_t>(buffer, 5);
  require(key <= kMaxStoreKey && value <= kMaxStoreValue,
          "a message with a key of {} and a value of {} bytes", key, value);
  if (buffer.size() < kHeaderSize + key + value) return std::nullopt;
  Message message{kind, buffer.substr(kHeaderSize, key), buffer.substr(kHeaderSize + key, value)};
  buffer.erase(0, kHeaderSize + key + value);
  return message;
}

}  // namespace lab::tcp_store
