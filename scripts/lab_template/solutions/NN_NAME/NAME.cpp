// Lab NN · what it is about, in a few words: solution.
#include "labs/NN_NAME/NAME.h"

#include <algorithm>

namespace labNN {

// Task 1
std::vector<float> sorted_numbers(float number, lab::ProcessGroup& world) {
  const lab::Tensor own = lab::Tensor::from({number}, {1});
  const lab::Tensor all = lab::Tensor::empty({world.size()});
  world.all_gather(all, own);
  std::vector<float> numbers(all.values().begin(), all.values().end());
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace labNN
