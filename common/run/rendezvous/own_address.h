// The address under which others reach this machine.
#pragma once

#include <string>

namespace lab {

/// The numeric address of this machine from which connections to `peer` (an address or a name)
/// would leave; sends nothing. Throws Error if the name is unknown or there is no route.
std::string own_address_towards(const std::string& peer);

}  // namespace lab
