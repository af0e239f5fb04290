#include "common/tools/convert/llama2c.h"

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/io/files.h"
#include "common/run/checkpoint/config_json.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMagic = 0x616b3432;  // "ak42", of version 1 on
constexpr size_t kLongHeader = 256;      // of version 1
using Sizes = std::array<int32_t, 7>;

struct Header {
  LlamaConfig config;
  int version = 0;
  size_t bytes = 0;
};

// One piece of the file after the header.
struct Piece {
  std::string name;      // of the parameter; empty: the rotary angles
  bool rotates = false;  // its rows are in llama2.c's order
};

std::vector<Piece> pieces_of(const LlamaConfig& config, int version) {
  std::vector<Piece> pieces;
  const auto add = [&](const char* kind, bool rotates = false) {
    for (int64_t layer = 0; layer < config.layers; ++layer)
      pieces.push_back({fmt::format("model.layers.{}.{}.weight", layer, kind), rotates});
  };
  const char* const first_norm = "input_layernorm";
  const char* const second_norm = "post_attention_layernorm";
  if (version == 1) {
    add(first_norm);
    add(second_norm);
    pieces.push_back({"model.norm.weight"});
  }
  pieces.push_back({"model.embed_tokens.weight"});
  if (version == 0) add(first_norm);
  add("self_attn.q_proj", /*rotates=*/true);
  add("self_attn.k_proj", /*rotates=*/true);
  add("self_attn.v_proj");
  add("self_attn.o_proj");
  if (version == 0) add(second_norm);
  add("mlp.gate_proj");
  add("mlp.down_proj");
  add("mlp.up_proj");
  if (version == 0) {
    pieces.push_back({"model.norm.weight"});
    pieces.push_back({});
  }
  if (!config.tied_head) pieces.push_back({"lm_head.weight"});
  return pieces;
}

uint64_t size_of_angles(const LlamaConfig& config) {
  return static_cast<uint64_t>(config.context * config.head_dim()) * sizeof(float);
}

// Calls action(row in the file, row of the matrix) for all rows of a matrix.
template <typename Action>
void for_each_row(const LlamaConfig& config, const Tensor& matrix, bool rotates,
                  const Action& action) {
  const int64_t width = config.head_dim();
  for (int64_t row = 0; row < matrix.row_count(); ++row) {
    const int64_t in_head = row % width;
    action(row, rotates ? row - in_head + rotate_half_row(in_head, width) : row);
  }
}

Header read_header(std::span<const std::byte> bytes, const std::string& file) {
  Header header;
  const auto number = [&](size_t offset) {
    require(offset + sizeof(int32_t) <= bytes.size(), "{}: cut short or not a model of llama2.c",
            file);
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  const bool has_version = static_cast<uint32_t>(number(0)) == kMagic;
  if (has_version) {
    header.version = number(4);
    require(header.version == 1, "{}: version {} of llama2.c's format cannot be read{}", file,
            header.version, header.version == 2 ? ", its weights are quantized" : "");
  }
  Sizes sizes{};
  for (size_t i = 0; i < sizes.size(); ++i)
    sizes[i] = number((has_version ? 2 : 0) * sizeof(int32_t) + i * sizeof(int32_t));
  header.bytes = has_version ? kLongHeader : sizeof(sizes);
  require(header.bytes <= bytes.size(), "{}: cut short", file);

  LlamaConfig& config = header.config;
  config.dim = sizes[0];
  config.hidden_dim = sizes[1];
  config.layers = sizes[2];
  config.heads = sizes[3];
  config.kv_heads = sizes[4];
  config.vocab_size = has_version ? sizes[5] : std::abs(int64_t{sizes[5]});
  config.context = sizes[6];
  if (has_version) {
    const auto tied = static_cast<uint8_t>(bytes[2 * sizeof(int32_t) + sizeof(sizes)]);
    require(tied <= 1, "{}: the byte that says whether the head is tied is {}, not 0 or 1", file,
            tied);
    config.tied_head = tied == 1;
  } else {
    config.tied_head = sizes[5] > 0;
  }
  config.rope_theta = kLlama2cRopeTheta;
  return header;
}

// The sizes must be possible, and the file must have exactly the bytes that they imply.
void check(const Header& header, uint64_t size, const std::string& file) {
  try {
    header.config.validate();
  } catch (const Error& error) {
    fail("{}: not a model of llama2.c: {}", file, error.what());
  }
  const uint64_t expected = header.bytes +
                            static_cast<uint64_t>(parameter_count(header.config)) * sizeof(float) +
                            (header.version == 0 ? size_of_angles(header.config) : 0);
  require(size >= expected, "{}: cut short or not a model of llama2.c: it should have {} bytes",
          file, expected);
  require(size == expected, "{}: has {} bytes after its last weight", file, size - expected);
  require_proportion(header.config, static_cast<double>(parameter_count(header.config)), file,
                     "its header");
}

std::map<std::string, Tensor> tensors_of(const LlamaStage& model) {
  std::map<std::string, Tensor> tensors;
  for (const Parameter& parameter : model.named_parameters())
    tensors[parameter.name] = parameter.value;
  return tensors;
}

// Cosines, then sines, of position * theta^(-2j / head_dim).
void write_angles(AtomicFile& file, const LlamaConfig& config) {
  const int64_t pairs = config.head_dim() / 2;
  std::vector<float> cosines;
  std::vector<float> sines;
  for (int64_t position = 0; position < config.context; ++position)
    for (int64_t j = 0; j < pairs; ++j) {
      const double exponent = -static_cast<double>(j) / static_cast<double>(pairs);
      const double angle = static_cast<double>(position) *
                           std::pow(static_cast<double>(config.rope_theta), exponent);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  file.write(std::as_bytes(std::span(cosines)));
  file.write(std::as_bytes(std::span(sines)));
}

}  // namespace

LlamaStage read_llama2c(const fs::path& path, float norm_eps) {
  const MappedFile mapped(path);
  const std::string file = path.string();
  Header header = read_header(mapped.bytes(), file);
  header.config.norm_eps = norm_eps;
  check(header, mapped.bytes().size(), file);

  const LlamaConfig& config = header.config;
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, /*seed=*/0);
  const auto tensors = tensors_of(model);
  const std::byte* source = mapped.bytes().data() + header.bytes;
  for (const auto& [name, rotates] : pieces_of(config, header.version)) {
    if (name.empty()) {
      source += size_of_angles(config);  // the model computes them itself
      continue;
    }
    const Tensor& target = tensors.at(name);
    const auto row_bytes = static_cast<size_t>(target.size(-1)) * sizeof(float);
    for_each_row(config, target, rotates, [&](int64_t theirs, int64_t ours) {
      std::memcpy(target.data() + ours * target.size(-1),
                  source + static_cast<size_t>(theirs) * row_bytes, row_bytes);
    });
    source += target.bytes();
  }
  return model;
}

void write_llama2c(const fs::path& path, const LlamaStage& model) {
  const LlamaConfig& config = model.config();
  require(model.span() == StageSpan::whole(config), "{}: a stage is not a whole model",
          path.string());
  require(config.rope_theta == kLlama2cRopeTheta,
          "{}: llama2.c computes rotary angles with theta {}, this model with {}", path.string(),
          kLlama2cRopeTheta, config.rope_theta);
  const auto tensors = tensors_of(model);
  AtomicFile file(path);
  const int64_t vocab = config.tied_head ? config.vocab_size : -config.vocab_size;
  Sizes sizes{};
  size_t i = 0;
  for (const int64_t size : {config.dim, config.hidden_dim, config.layers, config.heads,
                             config.kv_heads, vocab, config.context})
    sizes[i++] = static_cast<int32_t>(size);
  file.write(std::as_bytes(std::span(sizes)));
  for (const auto& [name, rotates] : pieces_of(config, /*version=*/0)) {
    if (name.empty()) {
      write_angles(file, config);
      continue;
    }
    const Tensor& source = tensors.at(name);
    if (!rotates) {
      file.write(std::as_bytes(source.values()));
      continue;
    }
    const Tensor turned = Tensor::empty(source.shape());
    for_each_row(config, source, rotates, [&](int64_t theirs, int64_t ours) {
      turned.rows(theirs, theirs + 1).copy_from(source.rows(ours, ours + 1));
    });
    file.write(std::as_bytes(turned.values()));
  }
  file.commit();
}

}  // namespace lab
