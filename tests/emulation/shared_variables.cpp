#include "shared_variables.h"

#include <algorithm>
#include <set>
#include <string>

#include "device_memory.h"
#include "emulated/language.h"

namespace lab::emulation {
namespace {

constexpr const char* kGapName = "lab_emulation_gap_";

/// "_ZZ3sumPfE" of "_ZZ3sumPfE19lab_emulation_gap_0": what the names of all variables of the
/// function begin with. Empty for other names.
std::string function_prefix(const std::string& name) {
  size_t at = name.find(kGapName);
  if (at == std::string::npos) return {};
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
  return name.substr(0, at);
}

bool belongs_to(const std::string& name, const std::set<std::string>& functions) {
  auto after = functions.upper_bound(name);
  if (after == functions.begin()) return false;
  const std::string& prefix = *std::prev(after);
  return name.starts_with(prefix) && name.size() > prefix.size();
}

}  // namespace

SharedVariables::SharedVariables() {
  for (const Variables& file : symbols().files) add_region(file);
  std::set<std::string> functions;
  for (const Symbol& symbol : symbols().variables) {
    if (std::string prefix = function_prefix(symbol.name); !prefix.empty()) {
      functions.insert(std::move(prefix));
    }
  }
  for (const Symbol& symbol : symbols().variables) {
    if (region(symbol.begin) == nullptr) continue;
    if (symbol.name.find(kGapName) != std::string::npos) {
      mark(symbol, WordKind::kGap);
    } else if (belongs_to(symbol.name, functions)) {
      variables_.push_back(symbol);
      mark(symbol, WordKind::kShared);
    } else if (symbol.name.starts_with("_ZGV") &&
               belongs_to("_Z" + symbol.name.substr(4), functions)) {
      mark(symbol, WordKind::kIgnored);
    }
  }
  const auto place = reinterpret_cast<uintptr_t>(&coordinates);
  mark({place, place + sizeof(coordinates), ""}, WordKind::kIgnored);
}

SharedVariables& SharedVariables::instance() {
  static SharedVariables variables;
  return variables;
}

void SharedVariables::add_region(const Variables& file) {
  Region& region = regions_.emplace_back();
  region.begin = file.begin & ~uintptr_t{15};
  region.bytes = file.end - region.begin;
  const size_t words = region.bytes / 4 + 1;
  region.kinds.assign(words, WordKind::kHost);
  region.cells = static_cast<Cell*>(reserve_addresses(words * sizeof(Cell)));
}

void SharedVariables::mark(const Symbol& symbol, WordKind kind) {
  Region& region = *this->region(symbol.begin);
  for (uintptr_t at = symbol.begin & ~uintptr_t{3}; at < symbol.end; at += 4) {
    const bool whole = at >= symbol.begin && at + 4 <= symbol.end;
    WordKind& word = region.kind(at);
    word = whole || kind != WordKind::kShared ? kind : WordKind::kEdge;
  }
}

const Symbol* SharedVariables::find(uintptr_t address, size_t bytes) const {
  const Symbol* symbol = find_symbol(variables_, address);
  return symbol && address + bytes <= symbol->end ? symbol : nullptr;
}

const Symbol* SharedVariables::nearest(uintptr_t address) const {
  const Symbol* best = nullptr;
  size_t best_distance = 64 * 1024;
  for (const Symbol& symbol : variables_) {
    // An index is more often too large than negative.
    const size_t distance = address < symbol.begin ? 4 * (symbol.begin - address)
                            : address < symbol.end ? 0
                                                   : address - symbol.end;
    if (distance < best_distance) {
      best = &symbol;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace lab::emulation
