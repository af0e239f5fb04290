// The __shared__ variables of the program: static variables, found by their symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shadow.h"
#include "symbols.h"

namespace lab::emulation {

/// What lies in a word of the program's own variables.
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

  bool contains(uintptr_t address) const { return address - begin_ < bytes_; }
  WordKind kind(uintptr_t address) const { return kinds_[(address - begin_) / 4]; }
  Cell& cell(uintptr_t address) const { return cells_[(address - begin_) / 4]; }
  /// The variable that holds the bytes, or null.
  const Symbol* find(uintptr_t address, size_t bytes) const;
  /// The variable next to the address, if there is one.
  const Symbol* nearest(uintptr_t address) const;

 private:
  SharedVariables();
  void mark(const Symbol& symbol, WordKind kind);

  uintptr_t begin_;
  size_t bytes_;
  std::vector<Symbol> variables_;
  std::vector<WordKind> kinds_;
  Cell* cells_;
};

}  // namespace lab::emulation
