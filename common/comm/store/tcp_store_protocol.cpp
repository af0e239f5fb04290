// Bytes from messages and back.
#include "common/comm/store/tcp_store_protocol.h"

#include <algorithm>

#include "common/comm/store/store.h"
#include "common/error.h"

namespace lab::tcp_store {
namespace {

constexpr std::string_view kClientMagic = "labstore";
constexpr std::string_view kServerMagic = "LABSTORE";
constexpr size_t kHeaderSize = 13;

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

bool begins_alike(std::string_view bytes, std::string_view magic) {
  const size_t size = std::min(bytes.size(), magic.size());
  return bytes.substr(0, size) == magic.substr(0, size);
}

}  // namespace

std::string client_greeting(uint32_t version) {
  std::string bytes(kClientMagic);
  put(bytes, version);
  return bytes;
}

std::string server_greeting(uint64_t identity) {
  std::string bytes(kServerMagic);
  put(bytes, kVersion);
  put(bytes, identity);
  return bytes;
}

bool may_be_client_greeting(std::string_view bytes) { return begins_alike(bytes, kClientMagic); }

bool may_be_server_greeting(std::string_view bytes) { return begins_alike(bytes, kServerMagic); }

uint32_t greeting_version(std::string_view greeting) {
  return number_at<uint32_t>(greeting, kClientMagic.size());
}

uint64_t server_identity(std::string_view greeting) {
  return number_at<uint64_t>(greeting, kServerMagic.size() + sizeof kVersion);
}

std::string encode(const Message& message) {
  std::string bytes;
  bytes.reserve(kHeaderSize + message.key.size() + message.value.size());
  bytes += static_cast<char>(message.kind);
  put(bytes, message.number);
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
  const auto number = number_at<uint32_t>(buffer, 1);
  const size_t key = number_at<uint32_t>(buffer, 5);
  const size_t value = number_at<uint32_t>(buffer, 9);
  require(key <= kMaxStoreKey && value <= kMaxStoreValue,
          "a message with a key of {} and a value of {} bytes", key, value);
  if (buffer.size() < kHeaderSize + key + value) return std::nullopt;
  Message message{kind, number, buffer.substr(kHeaderSize, key),
                  buffer.substr(kHeaderSize + key, value)};
  buffer.erase(0, kHeaderSize + key + value);
  return message;
}

}  // namespace lab::tcp_store
