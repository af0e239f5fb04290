// The __shared__ variables of the program and of the shared objects that it has loaded: static
// variables, found by their symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shadow.h"
#include "symbols.h"

namespace lab::emulation {

/// What a word of a file's variables contains.
enum class WordKind : uint8_t {
  kHost,     // not for kernels
  kShared,   // in a shared variable
  kEdge,     // partly in a shared variable
  kGap,      // in front of a shared variable
  kIgnored,  // threadIdx and its like; guards of static variables
};

class SharedVariables {
 public:
  static SharedVariables& instance();

  /// The variables of one file.
  struct Region {
    uintptr_t begin = 0;
    size_t bytes = 0;
    std::vector<WordKind> kinds = {};
    Cell* cells = nullptr;

    bool contains(uintptr_t address) const { return address - begin < bytes; }
    WordKind& kind(uintptr_t address) { return kinds[(address - begin) / 4]; }
    Cell& cell(uintptr_t address) const { return cells[(address - begin) / 4]; }
  };

  /// Null if none holds the address.
  Region* region(uintptr_t address) {
    for (Region& region : regions_)
      if (region.contains(address)) return &region;
    return nullptr;
  }
  bool contains(uintptr_t address) { return region(address) != nullptr; }
  /// The variable that holds the bytes, or null.
  const Symbol* find(uintptr_t address, size_t bytes) const;
  /// The variable next to the address, if there is one.
  const Symbol* nearest(uintptr_t address) const;

 private:
  SharedVariables();
  void add_region(const Variables& file);
  void mark(const Symbol& symbol, WordKind kind);

  std::vector<Region> regions_;
  std::vector<Symbol> variables_;
};

}  // namespace lab::emulation
