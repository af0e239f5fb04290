// The protocol between a TcpStore and its server. All numbers are big-endian.
//
//   client greeting   "labstore"  u32 version
//   server greeting   "LABSTORE"  u32 version  u64 identity of this server
//   message           u8 kind  u32 number  u32 key size  u32 value size  key  value
//
// The client speaks first and waits for the server's greeting. Then every request gets one reply
// with the same number. A `get` whose key is not set gets it only once the key is set, and never if
// the client sends another request first: that is how a client stops waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lab::tcp_store {

inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kClientGreetingSize = 12;
inline constexpr size_t kServerGreetingSize = 20;

std::string client_greeting(uint32_t version = kVersion);
std::string server_greeting(uint64_t identity);

/// Whether this may be the beginning of the greeting of a client (server) of any version.
bool may_be_client_greeting(std::string_view bytes);
bool may_be_server_greeting(std::string_view bytes);
/// The version in a complete greeting.
uint32_t greeting_version(std::string_view greeting);
uint64_t server_identity(std::string_view greeting);

enum class Kind : uint8_t {
  // Requests; `add` has the amount as decimal text in `value`.
  kSet = 1,
  kGet,
  kTryGet,
  kAdd,
  // Replies
  kValue,   // done; `value` is the answer
  kAbsent,  // the key is not set
  kRefused  // `value` says why
};

struct Message {
  Kind kind = Kind::kValue;
  uint32_t number = 0;
  std::string key = {};
  std::string value = {};
};

std::string encode(const Message& message);

/// Takes the first message from the front of the buffer; empty if it is not complete yet. Throws
/// Error if it is not a message, or too large, before the buffer has grown.
std::optional<Message> take_message(std::string& buffer);

}  // namespace lab::tcp_store
