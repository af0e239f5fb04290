// A measured quantity over a run, made small enough for a picture.
#pragma once

#include <cstddef>
#include <vector>

namespace lab {

struct CurvePoint {
  double x = 0.0;
  double y = 0.0;
};
using Curve = std::vector<CurvePoint>;

/// At most `most` points: means over equally many neighbours (`group_of` says how many). Values
/// that are not finite are left out.
Curve thinned(const Curve& curve, size_t most);
size_t group_of(const Curve& curve, size_t most);

/// Means over a window around each point that is as wide on both sides, so that it lags nowhere.
Curve running_mean(const Curve& curve);

}  // namespace lab
