// TcpStore: a store over TCP, for MASTER_ADDR and MASTER_PORT; and its server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/comm/store/store.h"

namespace lab {

/// Limits of a TcpStoreServer.
struct TcpStoreLimits {
  size_t connections = 256;
  std::chrono::milliseconds greeting{5000};  // from connecting to a complete greeting
  std::chrono::milliseconds message{30000};  // to send a whole request, or to read a whole reply
};

/// Serves a store until it is destroyed, with one thread that accepts clients and one for each.
///
/// Every connection must begin with the protocol's greeting within a few seconds. A client that
/// sends anything else (a browser, a port scanner, a rank of another version), keys over 1 KiB or
/// values over 1 MiB, or makes too many connections, is disconnected; others are not affected.
class TcpStoreServer {
 public:
  /// Listens at `address` (a numeric address or a host name) and `port`; 0: any free one. Throws
  /// Error, in one line, if the port is in use (and says what to do) or the address is not this
  /// machine's.
  TcpStoreServer(const std::string& address, uint16_t port, const TcpStoreLimits& limits = {});
  /// Waiting clients get an Error at once; replies to finished requests are still sent, for at most
  /// limits.message. No call of `store()` may be in progress.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  uint16_t port() const;
  /// The same store, for this process; lives as long as the server.
  Store& store();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A client. Several threads may call it; a thread that waits in `get` does not hold up the others.
/// A call that the server does not answer within 8 s throws Error, and every call does so at once
/// when the server has ended.
class TcpStore final : public Store {
 public:
  /// Connects; retries until something listens there, for at most `timeout`. Throws Error: "no
  /// store at 10.0.0.1:29500 ...: is rank 0 running there?"
  TcpStore(const std::string& address, uint16_t port, std::chrono::milliseconds timeout);
  ~TcpStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get_within(const std::string& key,
                                        std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
