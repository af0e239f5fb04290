// convert: converts a trained model from one format to another.
#include <fmt/format.h>

#include "common/error.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/tools/convert/convert_model.h"
#include "common/tools/convert/llama2c.h"

namespace {

using namespace lab;

ConvertOptions parse(int argc, char** argv) {
  ConvertOptions options;
  CommandLine app(
      "Converts a trained model: checkpoints of this workbook, folders of Hugging Face, and "
      "llama2.c's .bin files.");
  app.add("--from", options.from, "PATH",
          "a checkpoint, the folder of a run (its newest one), a folder with config.json and "
          "safetensors in one or several files, or a .bin of llama2.c")
      .required();
  app.add("--to", options.to, "PATH",
          "NAME.bin for llama2.c; any other name becomes a folder that transformers can open")
      .required();
  app.add("--tokenizer", options.tokenizer, "FILE",
          "sentencepiece model to put into the folder; default: that of --from");
  app.add("--norm-eps", options.norm_eps, "",
          "epsilon of the norms of a .bin, which does not contain it; default: 1e-5, llama2.c's");
  app.read(argc, argv);
  if (options.norm_eps && !(*options.norm_eps > 0.0F && *options.norm_eps < 1.0F))
    throw UsageError("--norm-eps: it must lie between 0 and 1");
  return options;
}

void describe(const LlamaConfig& config) {
  fmt::print("model  {} weights, {} layers, {} heads ({} for keys and values), vocabulary {}, {}\n",
             parameter_count(config), config.layers, config.heads, config.kv_heads,
             config.vocab_size, config.tied_head ? "tied head" : "separate head");
}

int convert(int argc, char** argv) {
  const ConvertOptions options = parse(argc, argv);
  const bool to_llama2c = options.to.extension() == ".bin";
  check_target_is_free(options.to);
  const OpenModel open = open_model(options);
  const LlamaConfig& config = open.model.config();
  describe(config);
  if (to_llama2c) {
    write_llama2c(options.to, open.model);
    if (config.norm_eps != kLlama2cNormEps)
      fmt::print("note: llama2.c computes norms with epsilon {}, this model with {}\n",
                 kLlama2cNormEps, config.norm_eps);
  } else {
    write_model_folder(options.to, open);
    if (open.tokenizer.empty())
      fmt::print("note: there is no tokenizer beside the model; --tokenizer adds one\n");
  }
  fmt::print("wrote  {}\n", display_path(options.to));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, convert); }
