// llama2.c's model files (.bin): one header, then the weights, kind by kind, in float32.
// Format: https://github.com/karpathy/llama2.c, export.py: versions 0 ("legacy") and 1.
//
//   version 0   dim, hidden_dim, layers, heads, kv_heads, vocab_size (negative: the head has its
//   own
//               weights), context: 7 numbers of 4 bytes. Embedding; then of all layers the first
//               norm, wq, wk, wv, wo, the second norm, w1 (gate), w2 (down), w3 (up); last norm;
//               cosines and sines of the rotary angles [context, head_dim / 2] each; head.
//   version 1   "ak42" and the version, the 7 numbers, a byte that says whether the head is tied,
//               zeros up to byte 256. All norms first; then as above, without angles.
//
// There, rotary embedding turns neighbours (2j, 2j + 1) of a head; here and at Hugging Face, it
// turns j and j + head_dim / 2. So the rows of wq and wk are in another order, head by head.
#pragma once

#include <filesystem>

#include "common/model/llama_stage.h"

namespace lab {

/// The value in llama2.c's programs; the file does not contain it.
inline constexpr float kLlama2cNormEps = 1e-5F;
inline constexpr float kLlama2cRopeTheta = 10000.0F;

/// For row `row` of a head of `head_dim` rows in llama2.c's order: which row it is in ours.
inline int64_t rotate_half_row(int64_t row, int64_t head_dim) {
  return row % 2 * (head_dim / 2) + row / 2;
}

/// Reads version 0 or 1. Throws Error naming the file: not of this format, quantized, impossible
/// sizes, cut short, bytes left over. All of this is checked before memory is allocated for the
/// model.
LlamaStage read_llama2c(const std::filesystem::path& path, float norm_eps = kLlama2cNormEps);

/// Writes version 0, atomically. Throws Error if the model's rotary angles are not llama2.c's.
void write_llama2c(const std::filesystem::path& path, const LlamaStage& model);

}  // namespace lab
