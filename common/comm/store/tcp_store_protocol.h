// What a TcpStore and its server say to each other. All numbers are big-endian.
//
//   client greeting   "labstore"  u32 version
//   server greeting   "LABSTORE"  u32 version  u64 identity of this server
//   message           u8 kind  u32 number  u32 key size  u32 value size  key  value
//
// The client speaks first and waits for the server's greeting. Then every request gets one reply
// with the same number, but a `get` whose key is not set gets it only once somebody sets it, and
// none if the client sends another request before: that is how waiting ends.
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

/// Whether this begins as the greeting of a client (server) of any version does, so far as it goes.
bool may_be_client_greeting(std::string_view bytes);
bool may_be_server_greeting(std::string_view bytes);
/// Of a greeting that is whole.
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

/// Takes the first message from the front of the buffer; empty if it is not whole yet. Throws Error
/// if it is no message, or too large: this shows before the buffer has grown.
std::optional<Message> take_message(std::string& buffer);

}  // namespace lab::tcp_store
