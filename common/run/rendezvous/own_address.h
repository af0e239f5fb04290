// Which address of this machine others reach it at.
#pragma once

#include <string>

namespace lab {

/// The numeric address that connections to `peer` (an address or a name) leave this machine from;
/// nothing is sent. Throws Error if the name is unknown or no route leads there.
std::string own_address_towards(const std::string& peer);

}  // namespace lab
