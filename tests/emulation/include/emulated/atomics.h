// Atomic operations on shared and on device memory. Each returns the old value.
#pragma once

float atomicAdd(float* address, float value);
double atomicAdd(double* address, double value);
int atomicAdd(int* address, int value);
unsigned int atomicAdd(unsigned int* address, unsigned int value);
unsigned long long atomicAdd(unsigned long long* address, unsigned long long value);
int atomicSub(int* address, int value);
unsigned int atomicSub(unsigned int* address, unsigned int value);
int atomicMax(int* address, int value);
unsigned int atomicMax(unsigned int* address, unsigned int value);
int atomicMin(int* address, int value);
unsigned int atomicMin(unsigned int* address, unsigned int value);
int atomicOr(int* address, int value);
unsigned int atomicOr(unsigned int* address, unsigned int value);
int atomicExch(int* address, int value);
unsigned int atomicExch(unsigned int* address, unsigned int value);
float atomicExch(float* address, float value);
/// Stores `value` if the old value equals `expected`.
int atomicCAS(int* address, int expected, int value);
unsigned int atomicCAS(unsigned int* address, unsigned int expected, unsigned int value);
unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                             unsigned long long value);
/// old >= limit ? 0 : old + 1.
unsigned int atomicInc(unsigned int* address, unsigned int limit);
