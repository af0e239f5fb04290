// A quantity measured during a run, thinned out for a picture.
#pragma once

#include <cstddef>
#include <vector>

namespace lab {

struct CurvePoint {
  double x = 0.0;
  double y = 0.0;
};
using Curve = std::vector<CurvePoint>;

/// At most `most` points: means over groups of neighbours of equal size (`group_of`). Values that
/// are not finite are left out.
Curve thinned(const Curve& curve, size_t most);
size_t group_of(const Curve& curve, size_t most);

/// Means over a window around each point, equally wide on both sides, so that the curve does not
/// lag.
Curve running_mean(const Curve& curve);

}  // namespace lab
