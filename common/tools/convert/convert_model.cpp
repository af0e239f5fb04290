#include "common/tools/convert/convert_model.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/data/tokenizer.h"
#include "common/error.h"
#include "common/io/files.h"
#include "common/io/json_file.h"
#include "common/optim/optimizer.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/checkpoint_tensors.h"
#include "common/run/checkpoint/config_json.h"
#include "common/tools/convert/llama2c.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.model";

// A token number in config.json; the first one of a list.
int32_t token_number(const nlohmann::json& config, const char* key, int32_t otherwise) {
  if (!config.contains(key)) return otherwise;
  nlohmann::json value = config[key];
  if (value.is_array() && !value.empty()) value = nlohmann::json(value[0]);
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX;
  return fits ? value.get<int32_t>() : otherwise;
}

OpenModel open_folder(const fs::path& folder) {
  OpenModel open{.model = load_model(folder), .tokenizer = {}};
  const auto config = read_json_file(folder / kConfig);
  open.bos = token_number(config, "bos_token_id", open.bos);
  open.eos = token_number(config, "eos_token_id", open.eos);
  std::error_code ignored;
  if (fs::exists(folder / kTokenizer, ignored)) {
    verify_checkpoint(folder, {kTokenizer});
    open.tokenizer = MappedFile(folder / kTokenizer).text();
  }
  return open;
}

OpenModel open_source(const ConvertOptions& options) {
  std::error_code ignored;
  require(fs::exists(options.from, ignored), "{}: no such file or folder", options.from.string());
  if (!fs::is_directory(options.from, ignored))
    return {.model = read_llama2c(options.from, options.norm_eps.value_or(kLlama2cNormEps)),
            .tokenizer = {}};
  require(!options.norm_eps,
          "{}: its {} says the epsilon of the norms; one may be given for a "
          ".bin only",
          options.from.string(), kConfig);
  return open_folder(find_checkpoint(options.from));
}

void check_weights(const LlamaStage& model, const fs::path& from) {
  const Tensor parameters = model.parameters();
  require(std::ranges::all_of(parameters.values(), [](float w) { return std::isfinite(w); }),
          "{}: has weights that are not numbers: training has diverged, or the file is damaged",
          from.string());
}

}  // namespace

OpenModel open_model(const ConvertOptions& options) {
  OpenModel open = open_source(options);
  check_weights(open.model, options.from);
  if (options.tokenizer.empty()) return open;
  const Tokenizer tokenizer(options.tokenizer);
  const int64_t vocabulary = open.model.config().vocab_size;
  require(tokenizer.vocab_size() == vocabulary,
          "{}: this tokenizer has {} tokens, the model knows {}", options.tokenizer.string(),
          tokenizer.vocab_size(), vocabulary);
  open.tokenizer = MappedFile(options.tokenizer).text();
  open.bos = tokenizer.bos();
  open.eos = tokenizer.eos();
  return open;
}

void check_target_is_free(const fs::path& to) {
  std::error_code ignored;
  require(!fs::exists(fs::symlink_status(to, ignored)),
          "{}: exists already, and is not overwritten; choose another name", to.string());
}

void write_model_folder(const fs::path& folder, const OpenModel& open) {
  // Without a trailing slash, which would leave no name.
  const fs::path whole = fs::absolute(folder).lexically_normal();
  const fs::path target = whole.has_filename() ? whole : whole.parent_path();
  const fs::path temporary =
      target.parent_path() / fmt::format(".{}.unfinished-{}", target.filename().string(), getpid());
  check_target_is_free(target);
  std::error_code error;
  try {
    write_file(temporary / kConfig, config_to_json(open.model.config(), open.bos, open.eos));
    write_tensors(temporary / part_name(kModelSet, 0, 1), kModelSet,
                  saved_tensors(open.model, Sgd())[0].tensors);
    if (!open.tokenizer.empty()) write_file(temporary / kTokenizer, open.tokenizer);
    sync_folder(temporary);
    check_target_is_free(target);
    fs::rename(temporary, target, error);
    require(!error, "cannot rename {} to {}: {}", temporary.string(), target.string(),
            error.message());
    sync_folder(target.parent_path());
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

}  // namespace lab
