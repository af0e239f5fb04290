// What the stages of a pipeline do together, apart from passing microbatches on. All ranks of the
// pipeline call these functions, in the same order; rank r is stage r.
#pragma once

#include "common/comm/agreement.h"
#include "common/comm/process_group.h"
#include "common/model/llama_stage.h"

namespace lab {

/// Scales the gradients of all stages by max_norm / norm if the norm of all of them together
/// exceeds max_norm > 0. Returns the norm before, on every rank. Squares are added in the order of
/// one process with the whole model (each stage continues the sum of the stages upstream), so that
/// the factor is the same to the last bit. Messages: 8 bytes from each stage to the next, and a
/// broadcast of 8 bytes. With one stage, none.
double clip_gradients(LlamaStage& stage, double max_norm, ProcessGroup& pipeline);

}  // namespace lab
