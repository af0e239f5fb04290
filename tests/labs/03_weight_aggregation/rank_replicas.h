// All replicas of local SGD in one process, in float64 where they are averaged: what the verdict on
// task 3 compares with, for right and wrong ways to aggregate.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/grading/parcel.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"

namespace lab03 {

/// Small enough for milliseconds, with every kind of weight; large initial values, so that the
/// gradients of all of them are well above rounding.
lab::LlamaStage tiny_model();

/// "sgd" or "adam", for a model of `size` weights.
std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size);

/// This rank's microbatches of a step, counted from 1.
std::vector<lab::TokenBatch> microbatches(const lab::grading::Parcel& input, int rank, int step);

/// "NAME\n..." and the first element of each parameter in the flat buffer of the model.
void describe_parameters(const lab::LlamaStage& model, lab::grading::Parcel& result);

/// Scenario: input as `replicas_input` in training_case.h writes it; with
///   "shares"           one per rank
///   "averages"         after which steps weights are averaged
///   "average_first"    1: before the local step of those steps, not after it
///   "gradient_scale"   factor of every gradient
///   "gradients"        1: the gradients are averaged, in every step, and not the weights
///   "own_means"        1: every microbatch of a rank counts the same, whatever its targets
/// Returns "start", and for every step s and rank r "weights.s.r" and "loss.s.r".
lab::grading::Parcel run_replicas(const lab::grading::Parcel& input);

}  // namespace lab03
