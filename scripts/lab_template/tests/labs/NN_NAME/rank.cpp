// The rank program of lab NN: the contract's functions, and the scenarios that call them.
#include "labs/NN_NAME/NAME.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"

using lab::grading::own;
using lab::grading::Parcel;

namespace labNN {

// The contract's functions. Where another task calls one, it can be given a correct one (is_given).

std::vector<float> sorted_numbers(float number, lab::ProcessGroup& world) {
  return own(&sorted_numbers)(number, world);
}

namespace {

/// Task 1.
Parcel run_sorted_numbers(const Parcel& input, lab::ProcessGroup& world) {
  const std::vector<float> sorted =
      sorted_numbers(static_cast<float>(input.number("number")), world);
  Parcel result;
  result.set("sorted", std::vector<double>(sorted.begin(), sorted.end()));
  return result;
}

}  // namespace
}  // namespace labNN

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.group = {{"sorted_numbers", labNN::run_sorted_numbers}}});
}
