// Names of the program's own functions and variables, from its symbol table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lab::emulation {

struct Symbol {
  uintptr_t begin;
  uintptr_t end;
  std::string name;  // as the linker knows it
};

/// The functions and the variables of /proc/self/exe, at the addresses where they lie in memory,
/// sorted. Empty if the program was stripped.
struct Symbols {
  std::vector<Symbol> functions;
  std::vector<Symbol> variables;
};
const Symbols& symbols();

/// What must be added to an address in the program's file to get that in memory.
uintptr_t load_offset();

/// The symbol that holds the address, or null.
const Symbol* find_symbol(const std::vector<Symbol>& sorted, uintptr_t address);

/// Whether the program cannot write there: constants.
bool is_constant(uintptr_t address);

/// "lab::cuda::scale" for "_ZN3lab4cuda5scaleEPff", without the types of its arguments.
std::string readable_function(const std::string& name);
/// "part" for "_ZZN3lab3sumEPfE4part".
std::string readable_variable(const std::string& name);

}  // namespace lab::emulation
