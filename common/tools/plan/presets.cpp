#include "common/tools/plan/presets.h"

#include "common/error.h"

namespace lab {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

LlamaConfig large_model(int64_t dim, int64_t heads, int64_t kv_heads, int64_t layers,
                        int64_t hidden, int64_t context) {
  LlamaConfig config;
  config.vocab_size = 32000;
  config.dim = dim;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.layers = layers;
  config.hidden_dim = hidden;
  config.context = context;
  return config;
}

LlamaConfig model_of(const std::string& name) {
  if (name == "1b") return large_model(2048, 32, 4, 22, 5632, 2048);
  if (name == "7b") return large_model(4096, 32, 32, 32, 11008, 4096);
  if (name == "70b") return large_model(8192, 64, 8, 80, 28672, 4096);
  fail("there is no model '{}': workbook, 1b, 7b, 70b, or a file by --config", name);
}

}  // namespace

Training training_preset(const std::string& name) {
  if (name == "workbook") return {.model = {}, .precision = float32_precision()};
  const LlamaConfig model = model_of(name);
  return {.model = model, .length = model.context, .batch = 1024, .precision = mixed_precision()};
}

DevicePreset device_preset(const std::string& name) {
  if (name == "cpu")
    return {.device = {name, 74 * kGiga, 8 * kGiga, 10 * kGiga},
            .inside = {1.2 * kGiga, 50 * kMicro},
            .between = {0.125 * kGiga, 100 * kMicro},
            .per_host = 1 << 20};
  if (name == "a100")
    return {.device = {name, 312e3 * kGiga, 80 * kGiga, 2039 * kGiga},
            .inside = {300 * kGiga, 5 * kMicro},
            .between = {25 * kGiga, 10 * kMicro},
            .per_host = 8,
            .data_sheet = true,
            .float32_flops = 19.5e3 * kGiga};
  if (name == "h100")
    return {.device = {name, 989e3 * kGiga, 80 * kGiga, 3350 * kGiga},
            .inside = {450 * kGiga, 5 * kMicro},
            .between = {50 * kGiga, 10 * kMicro},
            .per_host = 8,
            .data_sheet = true,
            .float32_flops = 67e3 * kGiga};
  fail("there is no device '{}': cpu, a100, h100; --flops, --memory and the like change one", name);
}

}  // namespace lab
