// Messages over TCP by Gloo.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/comm/store/store.h"
#include "common/comm/transport.h"

namespace lab {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // where others reach this machine: numeric, or a name
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds patience{2'000};  // of a first attempt, once all ranks are there
};

/// Connects this rank to all others of the world; they find each other's addresses in `store`,
/// which must be there as long as groups are made of the transport. If connections fail, or come
/// from elsewhere, all ranks try again, five times in all. Throws Error if the address is not this
/// machine's, if a rank does not arrive in time, or if no attempt succeeds.
std::unique_ptr<Transport> connect_gloo(const GlooOptions& options, Store& store);

}  // namespace lab
