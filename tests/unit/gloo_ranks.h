// Ranks over Gloo, as threads of this process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/gloo/gloo_transport.h"
#include "common/comm/process_group.h"
#include "common/comm/store/memory_store.h"

namespace lab {

/// What each rank threw; "" if it returned.
using Errors = std::vector<std::string>;
using Body = std::function<void(ProcessGroup&)>;

/// `timeout`: of operations. Ranks connect with patience, however loaded the machine is. Each
/// thread writes to its own place; no vector<bool>, no exceptions.
inline Errors run_over_gloo(int ranks, const Body& body,
                            std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  constexpr std::chrono::seconds kToConnect{20};
  MemoryStore store;
  Errors errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        FlightRecorder recorder(rank);
        std::shared_ptr<Transport> transport;
        if (ranks > 1)
          transport = connect_gloo({.rank = rank, .size = ranks, .timeout = kToConnect}, store);
        ProcessGroup world(std::move(transport), recorder, rank, ranks, timeout);
        body(world);
        world.barrier();  // nobody leaves while others still use its connections
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace lab
