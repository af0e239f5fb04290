// Asks the kernel for a route.
#include "common/run/rendezvous/own_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "common/error.h"

namespace lab {

std::string own_address_towards(const std::string& peer) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(peer.c_str(), "9", &hints, &found);
  require(failure == 0, "the address {} is unknown: {}", peer, gai_strerror(failure));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);

  const int descriptor = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  const bool known = descriptor >= 0 &&
                     connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  require(known, "there is no route to {}: {}; is the address right?", peer, std::strerror(error));
  std::array<char, NI_MAXHOST> text{};
  getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
              NI_NUMERICHOST);
  return text.data();
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace lab
