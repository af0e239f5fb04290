// The protocol between a TcpStore and its server. All numbers are big-endian.
//
//   client greeting   "labstore"  u32 version
//   server greeting   "LABSTORE"  u32 version  u64 identity of this server
//   message           u8 kind  u32 key size  u32 value size  key  value
//
// The client speaks first and waits for the server's greeting. Then every request gets one reply.
// Both greetings have begun alike in all versions, so that each side can name the other's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lab::tcp_store {

inline constexpr uint32_t kVersion = 2;
inline constexpr std::string_view kClientMagic = "labstore";
inline constexpr std::string_view kServerMagic = "LABSTORE";
inline constexpr size_t kGreetingSize = 12;
inline constexpr size_t kIdentitySize = 8;

/// The longest time that a server keeps one `get` waiting. Clients that wait for longer ask again,
/// so a server soon notices those that have left.
inline constexpr std::chrono::milliseconds kLongestWait{1000};

std::string greeting(std::string_view magic, uint32_t version = kVersion);
/// The version in a greeting, after its magic.
uint32_t greeting_version(std::string_view greeting);

std::string encode_identity(uint64_t identity);
uint64_t decode_identity(std::string_view bytes);

enum class Kind : uint8_t {
  // Requests
  kSet = 1,
  kGet,  // `value`: how long to wait for the key, in milliseconds, as decimal text
  kAdd,  // `value`: the amount, likewise
  // Replies
  kValue,   // done; `value` is the answer
  kAbsent,  // the key is not set
  kRefused  // `value` says why
};

struct Message {
  Kind kind = Kind::kValue;
  std::string key = {};
  std::string value = {};
};

std::string encode(const Message& message);

/// Takes the first message from the front of the buffer; empty if it is not complete yet. Throws
/// Error if it is not a message, or too large, before the buffer has grown.
std::optional<Message> take_message(std::string& buffer);

}  // namespace lab::tcp_store
