// Names of functions and variables, from the symbol tables of the program and of the shared objects
// that it has loaded.
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

/// Addresses of variables that can be written: those of one file.
struct Variables {
  uintptr_t begin;
  uintptr_t end;
};

/// Everything with a symbol table, at its addresses in memory, sorted. Stripped files, such as
/// system libraries, are left out. Files that are loaded later are not seen.
struct Symbols {
  std::vector<Symbol> functions;
  std::vector<Symbol> variables;
  std::vector<Variables> files;  // the program comes first
};
const Symbols& symbols();

/// The file that an instruction was loaded from, and its address there.
struct FilePlace {
  std::string file;
  uintptr_t address;
};
FilePlace file_place(uintptr_t instruction);

/// The symbol that holds the address, or null.
const Symbol* find_symbol(const std::vector<Symbol>& sorted, uintptr_t address);

/// Whether nobody can write there: constants.
bool is_constant(uintptr_t address);

/// "lab::cuda::scale" for "_ZN3lab4cuda5scaleEPff", without the types of its arguments.
std::string readable_function(const std::string& name);
/// "part" for "_ZZN3lab3sumEPfE4part".
std::string readable_variable(const std::string& name);

}  // namespace lab::emulation
