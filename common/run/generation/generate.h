// Generating text: the model continues a prompt token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/generation/sampling.h"
#include "common/run/options/run_plan.h"

namespace lab {

struct GenerateOptions {
  std::string prompt = "Once upon a time";  // may be empty: the model chooses the beginning
  int64_t max_tokens = 256;                 // new tokens at most
  SamplingOptions sampling;
};

/// That of a training run: its prompt, length and seed.
GenerateOptions story_of(const RunPlan& plan);

/// Continues the prompt until the model ends the story (EOS), `max_tokens` are reached or the
/// context is full. Returns prompt and continuation. `on_text` receives the text piece by piece as
/// it is produced, the prompt first; pieces end between UTF-8 characters. Throws Error if the
/// vocabularies of model and tokenizer differ or the prompt does not fit into the context.
std::string generate(const LlamaStage& model, const Tokenizer& tokenizer,
                     const GenerateOptions& options,
                     const std::function<void(std::string_view)>& on_text = {});

/// For `on_text`: prints to stdout at once.
void print_text(std::string_view text);

/// Prints the story at the end of a training run, if the plan asks for one.
void print_story(const LlamaStage& model, const Tokenizer& tokenizer, const RunPlan& plan);

}  // namespace lab
