// How rank program and verdict of lab 11 write what happened to a server: as lists of numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lab11::entries {

enum Operation { kPull, kPush, kLeave, kMayStart };

// An operation of a script: which server, which operation, worker or ticket, samples.
inline constexpr size_t kScriptLength = 4;

/// Elements of the weights, if nothing else is said.
inline constexpr int64_t kElements = 3;

// A state:
//   version, gradients, samples, next item, next ticket,
//   leases, and for each: ticket, worker, item, version
//   returned items, and these
//   elements of `sum`, and these
// A record of the log:
//   server, operation, worker or ticket, samples, elements of the gradient, and these,
//   yes or no, ticket number, item, version,             what the function returned
//   calls of `update` so far, the version that the last of these saw, whether the push was changed,
//   the state afterwards

/// The gradient that a script pushes with a ticket.
inline double scripted(int64_t ticket, int64_t element) {
  return static_cast<double>((ticket * 31 + element * 17 + 5) % 23 - 11) / 8;
}

/// The model of the simulated schedules: the mean gradient of an item at the weights w.
inline double quadratic(int64_t item, int64_t element, double w) {
  const auto curvature = static_cast<double>(1 + (item + element) % 3);
  const auto place = static_cast<double>((item * 7 + element * 5) % 11) - 5;
  return curvature * (w - place / 4);
}
inline int64_t samples_of(int64_t item) { return (item * 3 + 1) % 5; }  // 0 as well
inline constexpr double kRate = 0.05;

}  // namespace lab11::entries
