// The functions of labs 01 and 01cuda that every training program calls, as their contracts declare
// them (labs/01_single_gpu/single_gpu.h, labs/01cuda_kernels/kernels.h). The library knows no lab:
// a program is linked with one implementation of each.
#pragma once

#include <cstdint>
#include <span>

#include "common/data/batch.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab01 {

double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets);
void adam_update(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment);

}  // namespace lab01

namespace lab01cuda {

void launch_softmax_cross_entropy(float* logits, const int32_t* targets, float scale, float* losses,
                                  int64_t rows, int64_t vocab);
void launch_adam(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 float* parameters, const float* gradients, float* first_moment,
                 float* second_moment, int64_t count);

}  // namespace lab01cuda
