// What the tests of simulated jobs share: numbers that tell where they come from, results by rank.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/comm/sim/simulation.h"

namespace lab {

using Numbers = std::vector<float>;

/// Numbers that tell where they come from; sums of a few of them are exact.
inline Numbers numbers_of(int origin, int64_t count) {
  Numbers numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(1000 * (origin + 1) + static_cast<int>(i % 500));
  return numbers;
}

inline Tensor tensor_of(int origin, int64_t count) {
  return Tensor::from(numbers_of(origin, count), {count});
}

inline Tensor blank(int64_t count) {
  const Tensor tensor = Tensor::empty({count});
  tensor.fill(-1);
  return tensor;
}

inline Numbers contents(const Tensor& tensor) {
  return Numbers(tensor.values().begin(), tensor.values().end());
}

inline std::string explain(const SimulationReport& report) {
  std::string text = report.diagnosis ? report.diagnosis->text() + "\n" : "";
  for (const std::string& error : report.errors) text += "[" + error + "]\n";
  return text;
}

/// What `body` returns on every rank of a job that must succeed.
inline std::vector<Numbers> results(const SimulationOptions& options,
                                    const std::function<Numbers(ProcessGroup&)>& body) {
  std::vector<Numbers> result(static_cast<size_t>(options.ranks));
  const auto report = simulate(options, [&](ProcessGroup& world) {
    result[static_cast<size_t>(world.rank())] = body(world);
  });
  EXPECT_TRUE(report.succeeded()) << explain(report);
  return result;
}

/// Every rank sends to the next one before it receives.
inline std::function<void(ProcessGroup&)> sends_first(int64_t count) {
  return [count](ProcessGroup& world) {
    const int size = world.size();
    world.send(tensor_of(world.rank(), count), (world.rank() + 1) % size);
    world.recv(blank(count), (world.rank() + size - 1) % size);
  };
}

}  // namespace lab
