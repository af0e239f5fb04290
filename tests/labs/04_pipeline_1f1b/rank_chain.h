// All stages in one process, one after the other: what each of them takes and makes.
#pragma once

#include "common/grading/parcel.h"

namespace lab04 {

/// What a stage's output is set to when its forward has returned: whoever is still sending it then
/// sends this.
inline constexpr float kOverwritten = 1e3F;

/// Input: "counts", layers per stage; "passes"; "tokens.K" of each pass; "leftover" in the
/// gradients before the first one. Leaves for pass K
///   "output.K.R": what stage R's forward returns,
///   "logits.K", "logits_gradient.K": of the whole model,
///   "gradients.K": packed gradients of the whole model, all passes so far added up,
///   "wrong_gradients.K": the same of the stages in turn.
/// "wrong" in the input names a mistake that the stages make, in the forward pass
///   "zeros": nothing is received, stages compute on zeros;
///   "input": a stage hands on what it has got, in place of what it has made;
///   "overwritten": stages get what outputs are overwritten with;
/// or in the backward pass
///   "output_gradient": a stage hands on what it has got.
lab::grading::Parcel run_chain(const lab::grading::Parcel& input);

}  // namespace lab04
