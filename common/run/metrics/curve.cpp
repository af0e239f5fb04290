#include "common/run/metrics/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lab {

size_t group_of(const Curve& curve, size_t most) {
  return std::max<size_t>(1, (curve.size() + most - 1) / most);
}

Curve thinned(const Curve& curve, size_t most) {
  Curve finite = curve;
  std::erase_if(finite, [](const CurvePoint& p) { return !std::isfinite(p.x + p.y); });
  const size_t group = group_of(finite, most);
  Curve result;
  for (size_t first = 0; first < finite.size(); first += group) {
    const size_t last = std::min(first + group, finite.size());
    CurvePoint mean;
    for (size_t i = first; i < last; ++i) {
      mean.x += finite[i].x / static_cast<double>(last - first);
      mean.y += finite[i].y / static_cast<double>(last - first);
    }
    result.push_back(mean);
  }
  return result;
}

Curve running_mean(const Curve& curve) {
  const auto count = static_cast<int64_t>(curve.size());
  const int64_t widest = std::max<int64_t>(count / 40, 2);
  std::vector<double> sums = {0.0};
  for (const CurvePoint& point : curve) sums.push_back(sums.back() + point.y);
  Curve result = curve;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t reach = std::min({widest, i, count - 1 - i});
    const auto first = static_cast<size_t>(i - reach);
    const auto last = static_cast<size_t>(i + reach + 1);
    result[static_cast<size_t>(i)].y =
        (sums[last] - sums[first]) / static_cast<double>(last - first);
  }
  return result;
}

}  // namespace lab
