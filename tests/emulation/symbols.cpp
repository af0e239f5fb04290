// See symbols.h. Reads 64-bit ELF files.
#include "symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace lab::emulation {
namespace {

/// The bytes of a file; none if it cannot be read.
class File {
 public:
  explicit File(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0) return;
    if (fstat(file, &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(Elf64_Ehdr))) {
      size_ = static_cast<size_t>(status.st_size);
      void* const memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory != MAP_FAILED) data_ = static_cast<const char*>(memory);
    }
    close(file);
  }
  ~File() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const char* data() const { return data_; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

void sort(std::vector<Symbol>& list) {
  std::sort(list.begin(), list.end(),
            [](const Symbol& a, const Symbol& b) { return a.begin < b.begin; });
}

/// Adds what the symbol tables of a file name. Returns whether it has one.
bool add_symbols(const char* data, uintptr_t offset, Symbols& result) {
  bool found = false;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(data);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(data + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    found = true;
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
  return found;
}

/// What can be written, without what is only relocated when the file is loaded.
Variables variables_of(const dl_phdr_info& info) {
  Variables result{0, 0};
  uintptr_t relocated_end = 0;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info.dlpi_phdr[i];
    const uintptr_t begin = info.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && (part.p_flags & PF_W) != 0) {
      if (result.begin == 0) result.begin = begin;
      result.end = begin + part.p_memsz;
    }
    if (part.p_type == PT_GNU_RELRO) relocated_end = begin + part.p_memsz;
  }
  result.begin = std::max(result.begin, relocated_end);
  return result;
}

int add_file(dl_phdr_info* info, size_t /*size*/, void* symbols) {
  auto& result = *static_cast<Symbols*>(symbols);
  const bool is_program = result.files.empty();
  const File file(is_program ? "/proc/self/exe" : info->dlpi_name);
  const bool has_symbols =
      file.data() != nullptr && add_symbols(file.data(), info->dlpi_addr, result);
  if (has_symbols || is_program) result.files.push_back(variables_of(*info));
  return 0;
}

Symbols read_symbols() {
  Symbols result;
  dl_iterate_phdr(add_file, &result);  // the program comes first
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

FilePlace file_place(uintptr_t instruction) {
  Dl_info info{};
  link_map* map = nullptr;
  const int found = dladdr1(reinterpret_cast<void*>(instruction), &info,
                            reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
  if (found == 0 || map == nullptr) return {"", 0};
  const bool is_program = map->l_name[0] == '\0';
  return {is_program ? fmt::format("/proc/{}/exe", getpid()) : map->l_name,
          instruction - map->l_addr};
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
