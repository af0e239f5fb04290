// See symbols.h. Reads the 64-bit ELF file that runs.
#include "symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

namespace lab::emulation {
namespace {

std::vector<char> program_file() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void sort(std::vector<Symbol>& list) {
  std::sort(list.begin(), list.end(),
            [](const Symbol& a, const Symbol& b) { return a.begin < b.begin; });
}

Symbols read_symbols() {
  Symbols result;
  const std::vector<char> file = program_file();
  const char* data = file.data();
  if (file.size() < sizeof(Elf64_Ehdr)) return result;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(data);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(data + header->e_shoff);
  const uintptr_t offset = load_offset();
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* list = reinterpret_cast<const Elf64_Sym*>(data + sections[i].sh_offset);
    const char* names = data + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      const int type = ELF64_ST_TYPE(list[k].st_info);
      if (list[k].st_shndx == SHN_UNDEF || list[k].st_size == 0) continue;
      if (type != STT_FUNC && type != STT_OBJECT) continue;
      const uintptr_t begin = offset + list[k].st_value;
      auto& target = type == STT_FUNC ? result.functions : result.variables;
      target.push_back({begin, begin + list[k].st_size, names + list[k].st_name});
    }
  }
  sort(result.functions);
  sort(result.variables);
  return result;
}

std::string demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace

// The first object listed is the program.
uintptr_t load_offset() {
  uintptr_t offset = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<uintptr_t*>(result) = info->dlpi_addr;
        return 1;
      },
      &offset);
  return offset;
}

bool is_constant(uintptr_t address) {
  return dl_iterate_phdr(
             [](dl_phdr_info* info, size_t, void* wanted) {
               const uintptr_t at = *static_cast<uintptr_t*>(wanted) - info->dlpi_addr;
               for (int i = 0; i < info->dlpi_phnum; ++i) {
                 const ElfW(Phdr)& part = info->dlpi_phdr[i];
                 const bool constant = part.p_type == PT_LOAD && (part.p_flags & PF_W) == 0;
                 const bool relocated = part.p_type == PT_GNU_RELRO;
                 if ((constant || relocated) && at - part.p_vaddr < part.p_memsz) return 1;
               }
               return 0;
             },
             &address) != 0;
}

const Symbols& symbols() {
  static const Symbols result = read_symbols();
  return result;
}

const Symbol* find_symbol(const std::vector<Symbol>& sorted, uintptr_t address) {
  auto after = std::upper_bound(sorted.begin(), sorted.end(), address,
                                [](uintptr_t a, const Symbol& b) { return a < b.begin; });
  if (after == sorted.begin()) return nullptr;
  --after;
  return address < after->end ? &*after : nullptr;
}

std::string readable_function(const std::string& name) {
  std::string text = demangle(name);
  for (size_t at = 0; (at = text.find("(anonymous namespace)::", at)) != std::string::npos;) {
    text.erase(at, 23);
  }
  if (text.starts_with("void ")) text.erase(0, 5);
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth == 0) return text.substr(0, i);
  }
  return text;
}

std::string readable_variable(const std::string& name) {
  const std::string text = demangle(name);
  const size_t colon = text.rfind("::");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace lab::emulation
