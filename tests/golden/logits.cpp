// logits: prints a model's logits for given tokens, to compare it with other programs.
#include <iterator>

#include "common/model/llama_stage.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"

namespace {

using namespace lab;

int print_logits(int argc, char** argv) {
  std::filesystem::path folder;
  TokenBatch batch{1, 0, {}};
  CommandLine app(
      "Prints the logits of a model: one line per token, one number per vocabulary entry.");
  app.add("--checkpoint", folder, "FOLDER", "a checkpoint, or the folder of a run (its newest one)")
      .required();
  app.add("--tokens", batch.tokens, "NUMBERS", "token numbers, e.g. 1,5,7")
      .comma_separated()
      .required();
  app.read(argc, argv);

  LlamaStage model = load_model(find_checkpoint(folder));
  batch.length = static_cast<int64_t>(batch.tokens.size());
  const Tensor logits = model.forward(batch);
  const auto vocab = static_cast<size_t>(logits.size(-1));
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    const std::span<const float> row = logits.values().subspan(t * vocab, vocab);
    std::string line;
    for (float value : row) fmt::format_to(std::back_inserter(line), "{} ", value);
    line.back() = '\n';
    fmt::print("{}", line);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, print_logits); }
