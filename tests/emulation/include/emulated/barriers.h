// Barriers of a block and of a warp, and the fence.
#pragma once

#include <source_location>

/// All threads of the block wait here for each other.
void __syncthreads(std::source_location where = std::source_location::current());
/// The same, and returns whether any (all, how many) of the threads gave a value other than 0.
int __syncthreads_or(int value, std::source_location where = std::source_location::current());
int __syncthreads_and(int value, std::source_location where = std::source_location::current());
int __syncthreads_count(int value, std::source_location where = std::source_location::current());

/// The lanes of the mask wait here for each other.
void __syncwarp(unsigned mask = 0xffffffffu,
                std::source_location where = std::source_location::current());

/// What the thread wrote before, other blocks may read from now on, once an atomic has told them.
void __threadfence();
void __threadfence_block();
