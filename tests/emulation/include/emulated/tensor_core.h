// Tensor cores: what common/gpu/kernels/tensor_core.h says in PTX.
#pragma once

#include <cstdint>

#include "emulated/source_location.h"

namespace lab::emulation {

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, sum being both C and D. Products are exact
/// and are added in float32 in the order of the inner dimension; a GPU's order is its own.
void mma_16x8x16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b_upper, uint32_t b_lower,
                 SourceLocation where = SourceLocation::current());

/// ldmatrix.sync.aligned.m8n8.x4.shared.b16, and the same with .trans.
void load_matrices(uint32_t (&matrices)[4], const void* row,
                   SourceLocation where = SourceLocation::current());
void load_matrices_transposed(uint32_t (&matrices)[4], const void* row,
                              SourceLocation where = SourceLocation::current());

}  // namespace lab::emulation
