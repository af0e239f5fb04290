// Why a rank waited: the other side was not there yet, or data was on its way.
#pragma once

#include <vector>

#include "common/pipeline/timeline.h"

namespace lab {

/// For every rank and each of its spans: the moment within the span at which the other side
/// arrived, so that data could travel. The span's start if it was there already; its end if it
/// arrived only then or is not in the timeline. For computations: the start.
///
/// The k-th send from a to b with a microbatch belongs to b's k-th recv of that microbatch from a;
/// the k-th collective of a set of members, on each of them, is the same one.
std::vector<std::vector<double>> counterpart_times(const Timeline& timeline);

}  // namespace lab
