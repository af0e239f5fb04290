// Barriers of a block and of a warp, and the fence.
#pragma once

#include "emulated/source_location.h"

/// All threads of the block wait here for each other.
void __syncthreads(
    lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current());
/// The same, and returns whether any (all, how many) of the threads gave a value other than 0.
int __syncthreads_or(
    int value, lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current());
int __syncthreads_and(
    int value, lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current());
int __syncthreads_count(
    int value, lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current());

/// The lanes of the mask wait here for each other.
void __syncwarp(unsigned mask = 0xffffffffu,
                lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current());

/// What the thread wrote before, other blocks may read from now on, once an atomic has told them.
void __threadfence();
void __threadfence_block();
