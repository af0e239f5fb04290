// The address at which others reach this machine.
#pragma once

#include <string>

namespace lab {

/// The numeric address of this machine from which connections to `peer` (an address or a name)
/// would leave; sends nothing. Throws Error if the name is unknown or there is no route.
std::string own_address_towards(const std::string& peer);

/// Whether only this machine itself can connect there: "localhost", "127.0.0.1", "::1".
bool is_loopback(const std::string& address);

}  // namespace lab
