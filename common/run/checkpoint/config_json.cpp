#include "common/run/checkpoint/config_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/io/json_file.h"
#include "common/printable.h"

namespace lab {
namespace {

using Json = nlohmann::json;

// A field that is absent or null has no value.
bool has(const Json& json, const char* key) { return json.contains(key) && !json[key].is_null(); }

// Reads the fields of one file; errors name file and field.
struct Fields {
  const Json& json;
  std::string file;

  int64_t integer(const char* key) const {
    require(has(json, key), "{}: \"{}\" is missing", file, key);
    const Json& value = json[key];
    require(value.is_number_integer() &&
                (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX}),
            "{}: \"{}\" is not a whole number", file, key);
    return value.get<int64_t>();
  }
  int64_t integer(const char* key, int64_t otherwise) const {
    return has(json, key) ? integer(key) : otherwise;
  }
  float real(const char* key, float otherwise) const {
    if (!has(json, key)) return otherwise;
    require(json[key].is_number() && std::isfinite(json[key].get<float>()),
            "{}: \"{}\" is not a number", file, key);
    return json[key].get<float>();
  }
  bool boolean(const char* key) const {
    if (!has(json, key)) return false;
    require(json[key].is_boolean(), "{}: \"{}\" is neither true nor false", file, key);
    return json[key].get<bool>();
  }
  // The field must be absent or have the only value that this model supports.
  void expect(const char* key, const Json& supported) const {
    require(!has(json, key) || json[key] == supported,
            "{}: \"{}\" is {}; this model supports only {}", file, key,
            has(json, key) ? printable(dumped(json[key])) : "", supported.dump());
  }
};

// Rotary angles: theta at the top level, or (transformers 5) in a separate object.
float read_rope_theta(const Fields& fields) {
  float theta = fields.real("rope_theta", 10000.0F);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!has(fields.json, key)) continue;
    require(fields.json[key].is_object(), "{}: \"{}\" is not an object", fields.file, key);
    const Fields inner{fields.json[key], fmt::format("{}: {}", fields.file, key)};
    inner.expect("rope_type", "default");
    inner.expect("type", "default");
    inner.expect("partial_rotary_factor", 1.0);
    theta = inner.real("rope_theta", theta);
  }
  return theta;
}

}  // namespace

std::string config_to_json(const LlamaConfig& config, int32_t bos, int32_t eos) {
  nlohmann::ordered_json json = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"torch_dtype", "float32"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.dim},
      {"intermediate_size", config.hidden_dim},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim()},
      {"max_position_embeddings", config.context},
      {"hidden_act", "silu"},
      {"rms_norm_eps", shortest(config.norm_eps)},
      {"rope_theta", shortest(config.rope_theta)},
      {"rope_scaling", nullptr},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", config.tied_head},
      {"initializer_range", shortest(config.init_std)},
      {"bos_token_id", bos},
      {"eos_token_id", eos},
      {"use_cache", true},
  };
  // Unknown to Hugging Face, which keeps it.
  if (config.embedding_scale != 1.0F) json["embedding_scale"] = shortest(config.embedding_scale);
  return json.dump(2) + "\n";
}

LlamaConfig read_config_json(const std::filesystem::path& path) {
  const Json json = read_json_file(path);
  const Fields fields{json, path.string()};
  fields.expect("model_type", "llama");
  fields.expect("hidden_act", "silu");
  fields.expect("attention_bias", false);
  fields.expect("mlp_bias", false);
  fields.expect("partial_rotary_factor", 1.0);
  require(!has(json, "quantization_config"), "{}: quantized models cannot be read", path.string());

  LlamaConfig config;
  config.vocab_size = fields.integer("vocab_size");
  config.dim = fields.integer("hidden_size");
  config.hidden_dim = fields.integer("intermediate_size");
  config.layers = fields.integer("num_hidden_layers");
  config.heads = fields.integer("num_attention_heads");
  config.kv_heads = fields.integer("num_key_value_heads", config.heads);
  config.context = fields.integer("max_position_embeddings", 2048);
  config.norm_eps = fields.real("rms_norm_eps", 1e-6F);
  config.rope_theta = read_rope_theta(fields);
  config.init_std = fields.real("initializer_range", 0.02F);
  config.embedding_scale = fields.real("embedding_scale", 1.0F);
  config.tied_head = fields.boolean("tie_word_embeddings");
  try {
    config.validate();
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
  fields.expect("head_dim", config.head_dim());
  return config;
}

void require_proportion(const LlamaConfig& config, double held,
                        const std::filesystem::path& weights, const char* said_by) {
  // Allowed for any file: 4 MiB of weights, 64 MiB of angles.
  constexpr double kSmallModel = 1 << 20;
  constexpr double kSmallTable = 1 << 24;
  const auto described = static_cast<double>(parameter_count(config));
  require(described < 4.0 * held + kSmallModel,
          "{}: holds {:.0f} weights, but {} describes a model of {:.0f}", weights.string(), held,
          said_by, described);
  const auto angles = static_cast<double>(config.context * config.head_dim());
  require(angles <= 4.0 * held + kSmallTable,
          "{}: holds {:.0f} weights, but {} describes a context of {} positions with {} angles "
          "each: far too long for it",
          weights.string(), held, said_by, config.context, config.head_dim());
}

}  // namespace lab
