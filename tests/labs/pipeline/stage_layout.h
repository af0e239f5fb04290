// Where the weights of each stage lie among those of the whole model. For verdicts.
#pragma once

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

#include "common/grading/compare.h"
#include "common/grading/parcel.h"

namespace pipeline_tests {

using Numbers = std::vector<double>;

class StageLayout {
 public:
  /// `whole`: what `describe` has left of the whole model. `counts`: layers per stage.
  StageLayout(const lab::grading::Parcel& whole, const Numbers& counts)
      : sizes_(whole.numbers("sizes")), begins_(counts.size() + 1, 0) {
    std::istringstream lines(whole.text("names"));
    for (std::string line; std::getline(lines, line);) names_.push_back(line);
    for (size_t k = 0; k < names_.size(); ++k)
      for (size_t s = stage_of(names_[k], counts) + 1; s < begins_.size(); ++s)
        begins_[s] += static_cast<size_t>(sizes_[k]);
  }

  /// The part of stage `stage` of numbers in the order of the whole model.
  Numbers part(const Numbers& whole, size_t stage) const {
    return {whole.begin() + static_cast<std::ptrdiff_t>(begins_[stage]),
            whole.begin() + static_cast<std::ptrdiff_t>(begins_[stage + 1])};
  }

  /// Element i of the part of a stage: "model.norm.weight, element 3".
  std::string name(size_t stage, size_t i) const {
    i += begins_[stage];
    for (size_t k = 0; k < names_.size(); ++k) {
      const auto size = static_cast<size_t>(sizes_[k]);
      if (i < size) return fmt::format("{}, element {}", names_[k], i);
      i -= size;
    }
    return "";
  }

 private:
  static size_t stage_of(const std::string& name, const Numbers& counts) {
    const std::string prefix = "model.layers.";
    if (name.starts_with("model.embed_tokens")) return 0;
    if (!name.starts_with(prefix)) return counts.size() - 1;
    double layer = std::stod(name.substr(prefix.size()));
    size_t stage = 0;
    while (layer >= counts[stage]) layer -= counts[stage++];
    return stage;
  }

  std::vector<std::string> names_;
  Numbers sizes_;
  std::vector<size_t> begins_;  // of each stage, and the end
};

}  // namespace pipeline_tests
