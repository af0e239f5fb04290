// TcpServer: a parameter server that workers reach over TCP. They come and go; it outlives them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/server/serving.h"

namespace lab {

class TcpServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    uint16_t port = 0;      // 0: any that is free
    std::string work = {};  // what is computed, "dim 288\nlayers 6\n"; a worker must state the same
    int64_t elements = 0;   // of the weights
    double silent_s = 60;   // a worker that computes for longer counts as dead
    size_t most_workers = 256;
    int first_free = 0;  // the lowest number given to a worker that has none
  };

  /// Listens from now on. Throws Error if it cannot.
  TcpServer(Options options, ServerHooks hooks);
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  uint16_t port() const;

  /// Serves until the hooks have finished and all workers know it (at most `patience_s` later), or
  /// until `tick`, which is called some ten times a second, returns false. A connection that sends
  /// garbage, or whose worker computes something else, is closed with a line in `notes`. Afterwards
  /// the port is closed. Rethrows what a hook throws.
  void run(const std::function<bool()>& tick, double patience_s = 10);

  /// The workers that are connected now.
  std::vector<int> workers() const;
  /// What has happened to connections since the last call: "worker 2 has joined".
  std::vector<std::string> take_notes();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
