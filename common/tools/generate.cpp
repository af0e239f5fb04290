// generate: has a trained model tell a story.
#include "common/run/generation/generate.h"

#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/tensor/parallel.h"

namespace {

using namespace lab;
namespace fs = std::filesystem;

struct Options {
  fs::path checkpoint;
  fs::path tokenizer;
  int threads = 0;
  GenerateOptions story;
};

Options parse(int argc, char** argv) {
  Options options;
  SamplingOptions& sampling = options.story.sampling;
  CommandLine app("Has a trained model tell a story.");
  app.add("--checkpoint", options.checkpoint, "FOLDER",
          "a checkpoint, or the folder of a run (its newest one)")
      .required();
  app.add("--tokenizer", options.tokenizer, "FILE", "default: tokenizer.model of the checkpoint");
  app.add("--prompt", options.story.prompt, "", "how the story begins").shows_default();
  app.add("--temperature", sampling.temperature, "", "0: always the most likely token")
      .shows_default();
  app.add("--top-k", sampling.top_k, "", "only the K most likely tokens; 0: all").shows_default();
  app.add("--top-p", sampling.top_p, "",
          "only the most likely tokens that together have this probability")
      .shows_default();
  app.add("--seed", sampling.seed, "", "another seed, another story").shows_default();
  app.add("--max-tokens", options.story.max_tokens, "", "longest continuation").shows_default();
  app.add("--threads", options.threads, "", "0: all cores").shows_default();
  app.read(argc, argv);
  try {
    sampling.validate();
    require(options.story.max_tokens >= 0, "max-tokens {} is negative", options.story.max_tokens);
    require(options.threads >= 0 && options.threads <= 1024,
            "threads {} must lie between 0 (all cores) and 1024", options.threads);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return options;
}

int run_generate(int argc, char** argv) {
  const Options options = parse(argc, argv);
  set_thread_count(options.threads);

  const fs::path checkpoint = find_checkpoint(options.checkpoint);
  const LlamaStage model = load_model(checkpoint);
  if (options.tokenizer.empty()) verify_checkpoint(checkpoint, {"tokenizer.model"});
  const Tokenizer tokenizer(options.tokenizer.empty() ? checkpoint / "tokenizer.model"
                                                      : options.tokenizer);
  generate(model, tokenizer, options.story, print_text);
  fmt::print("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, run_generate); }
