// Atomic operations. Only one thread of a kernel runs at a time, so plain arithmetic does it.
#include "emulated/atomics.h"

#include <algorithm>

#include "access.h"

namespace {

template <typename T, typename F>
T change(T* address, F next) {
  lab::emulation::atomic_access(address, sizeof(T));
  const T old = *address;
  *address = next(old);
  return old;
}

}  // namespace

float atomicAdd(float* address, float value) {
  return change(address, [=](float old) { return old + value; });
}
double atomicAdd(double* address, double value) {
  return change(address, [=](double old) { return old + value; });
}
int atomicAdd(int* address, int value) {
  return change(address, [=](int old) {
    return static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
  });
}
unsigned int atomicAdd(unsigned int* address, unsigned int value) {
  return change(address, [=](unsigned int old) { return old + value; });
}
unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return change(address, [=](unsigned long long old) { return old + value; });
}
int atomicSub(int* address, int value) { return atomicAdd(address, -value); }
unsigned int atomicSub(unsigned int* address, unsigned int value) {
  return atomicAdd(address, -value);
}
int atomicMax(int* address, int value) {
  return change(address, [=](int old) { return std::max(old, value); });
}
unsigned int atomicMax(unsigned int* address, unsigned int value) {
  return change(address, [=](unsigned int old) { return std::max(old, value); });
}
int atomicMin(int* address, int value) {
  return change(address, [=](int old) { return std::min(old, value); });
}
unsigned int atomicMin(unsigned int* address, unsigned int value) {
  return change(address, [=](unsigned int old) { return std::min(old, value); });
}
int atomicOr(int* address, int value) {
  return change(address, [=](int old) { return old | value; });
}
unsigned int atomicOr(unsigned int* address, unsigned int value) {
  return change(address, [=](unsigned int old) { return old | value; });
}
int atomicExch(int* address, int value) {
  return change(address, [=](int) { return value; });
}
unsigned int atomicExch(unsigned int* address, unsigned int value) {
  return change(address, [=](unsigned int) { return value; });
}
float atomicExch(float* address, float value) {
  return change(address, [=](float) { return value; });
}
int atomicCAS(int* address, int expected, int value) {
  return change(address, [=](int old) { return old == expected ? value : old; });
}
unsigned int atomicCAS(unsigned int* address, unsigned int expected, unsigned int value) {
  return change(address, [=](unsigned int old) { return old == expected ? value : old; });
}
unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                             unsigned long long value) {
  return change(address, [=](unsigned long long old) { return old == expected ? value : old; });
}
unsigned int atomicInc(unsigned int* address, unsigned int limit) {
  return change(address, [=](unsigned int old) { return old >= limit ? 0U : old + 1; });
}
