// ServerLink: a worker's connection to a TcpServer.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/server/messages.h"
#include "common/comm/store/tcp_store_socket.h"

namespace lab {

class ServerLink {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    uint16_t port = 0;
    std::string work = {};  // as TcpServer::Options::work
    int64_t elements = 0;   // of the weights
    int worker = -1;        // -1: the server chooses
    double connect_s = 5;   // how long to try to reach the server, at first and again
    double silent_s = 60;   // a connected server that is silent for longer counts as gone; it is
                            // silent while it validates or saves a checkpoint
  };

  /// Connects and greets. Throws Error if no server answers there, or if it refuses this worker.
  explicit ServerLink(Options options);

  int worker() const { return options_.worker; }

  /// Sends a request and waits for its reply. kNothing: the connection was lost and is up again,
  /// and the server may or may not have the request. Throws Error if the server is gone for good.
  Reply exchange(const Request& request);

 private:
  void connect();
  bool send(const std::string& bytes);

  Options options_;
  bool was_connected_ = false;
  tcp_store::Socket socket_;
  std::string in_;
};

}  // namespace lab
