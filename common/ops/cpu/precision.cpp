#include "common/ops/precision.h"

#include <dnnl.hpp>
#include <fstream>
#include <string>

#include "common/error.h"

namespace lab {
namespace {

Precision& precision_of_cpu() {
  static Precision precision = Precision::kFloat32;
  return precision;
}

/// The numbers of instruction sets are sets of bits, each containing those that it extends.
bool cpu_has(dnnl::cpu_isa isa) {
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needs = static_cast<unsigned>(isa);
  return (has & needs) == needs;
}

bool is_made_by_intel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string word; cpuinfo >> word;)
    if (word == "GenuineIntel") return true;
  return false;
}

}  // namespace

bool cpu_has_bfloat16() { return cpu_has(dnnl::cpu_isa::avx512_core_bf16); }

bool cpu_gains_by_bfloat16() {
  if (cpu_has(dnnl::cpu_isa::avx512_core_amx)) return true;
  return cpu_has_bfloat16() && !is_made_by_intel();
}

Precision precision(Device device) {
  return device == Device::kCpu ? precision_of_cpu() : accelerator().precision();
}

void set_precision(Device device, Precision precision) {
  if (device == Device::kCuda) return accelerator().set_precision(precision);
  require(precision != Precision::kTf32, "the CPU has no tf32: use --precision float32");
  require(precision == Precision::kFloat32 || cpu_has_bfloat16(),
          "bfloat16 needs a processor with instructions for it (AVX512-BF16 or AMX), and this one "
          "has none: use --precision float32");
  precision_of_cpu() = precision;
}

}  // namespace lab
