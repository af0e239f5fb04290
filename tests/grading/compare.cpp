// Tolerances, known mistakes, constant factors.
#include "tests/grading/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lab::grading {
namespace {

// Numbers that come from a known mistake match its formula to this; two different mistakes lie
// further apart in the tests' inputs.
constexpr double kMistakeFraction = 1e-4;
constexpr double kAlike = 0.25;

// Ranks find bytes of 0xfe in new memory (rank_harness.cpp): floats of -1.7e38. No right number is
// nearly as large.
constexpr double kUnwritten = 1e37;

double tolerance_at(const Expected& expected, size_t i) {
  return expected.tolerance.size() == 1 ? expected.tolerance[0] : expected.tolerance[i];
}

std::vector<size_t> wrong_places(const std::vector<double>& got, const Expected& expected) {
  std::vector<size_t> wrong;
  for (size_t i = 0; i < got.size(); ++i)  // written so that NaN is wrong
    if (!(std::abs(got[i] - expected.values[i]) <= tolerance_at(expected, i))) wrong.push_back(i);
  return wrong;
}

bool is_right(const std::vector<double>& got, const Expected& expected) {
  return wrong_places(got, expected).empty();
}

/// How far `got` is from the numbers of a mistake, in units of what may lie between them: up to 1
/// it explains them.
double distance(const std::vector<double>& got, const std::vector<double>& wrong,
                const Expected& expected) {
  if (got.size() != wrong.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(wrong[i])) continue;
    const double slack = tolerance_at(expected, i) + kMistakeFraction * std::abs(wrong[i]);
    const double apart = got[i] == wrong[i] ? 0 : std::abs(got[i] - wrong[i]) / slack;
    if (std::isnan(apart)) return std::numeric_limits<double>::infinity();
    most = std::max(most, apart);
  }
  return most;
}

std::vector<std::vector<std::string>>& told_explanations() {
  static std::vector<std::vector<std::string>> told;
  return told;
}

/// The mistakes that explain `got` best, equally well; empty if none does.
std::vector<std::string> explanations(const std::vector<double>& got, const Expected& expected) {
  std::vector<std::string> best;
  double least = 1;
  if (!expected.mistakes) return best;
  const double from_right = distance(got, expected.values, expected);
  for (const Mistake& mistake : expected.mistakes()) {
    if (mistake.values.size() == got.size() && is_right(mistake.values, expected))
      continue;  // no mistake here
    const double exact = distance(got, mistake.values, expected);
    if (exact >= from_right) continue;  // explains no more than the right numbers do
    // Two formulas for the same numbers differ by rounding: then the first is told.
    const double apart = exact < kAlike ? 0 : exact;
    if (apart > least) continue;
    if (apart < least) best.clear();
    least = apart;
    if (std::ranges::find(best, mistake.message) == best.end()) best.push_back(mistake.message);
  }
  return best;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

/// The factor that brings `expected` closest to `got`; 0 if there is none.
double best_factor(const std::vector<double>& got, const std::vector<double>& expected) {
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    products += got[i] * expected[i];
    squares += expected[i] * expected[i];
  }
  return squares > 0 ? products / squares : 0.0;
}

/// Rounding to bfloat16 changes a number by up to 0.4 %. Counts are right or wrong.
bool is_roughly_right(const std::vector<double>& got, const std::vector<double>& expected) {
  constexpr double kRoughly = 5e-3;
  if (std::ranges::all_of(expected, [](double v) { return v == std::floor(v); })) return false;
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return error <= kRoughly * kRoughly * size;
}

/// Whether these are the right numbers in other places.
bool are_moved(std::vector<double> got, std::vector<double> expected) {
  std::ranges::sort(got);
  std::ranges::sort(expected);
  return std::ranges::equal(got, expected, [](double a, double b) {
    return std::abs(a - b) <= kMistakeFraction * std::abs(b);
  });
}

/// Which numbers are wrong: "3 of 9 numbers are wrong, the last ones".
std::string wrong_numbers(const std::vector<double>& got, const std::vector<double>& expected,
                          const std::vector<size_t>& wrong) {
  if (wrong.size() > 1 && are_moved(got, expected))
    return fmt::format("the right numbers, but {} of {} in the wrong place", wrong.size(),
                       got.size());
  const std::string count = fmt::format("{} of {} numbers {} wrong", wrong.size(), got.size(),
                                        wrong.size() == 1 ? "is" : "are");
  const size_t first = wrong.front();
  const size_t last = wrong.back();
  const bool in_a_row = last - first + 1 == wrong.size();
  if (!in_a_row || wrong.size() == 1 || wrong.size() == got.size()) return count;
  if (first == 0) return count + ", the first ones";
  if (last + 1 == got.size()) return count + ", the last ones";
  return fmt::format("{}, elements {} to {}", count, first, last);
}

std::string diagnosis(const std::vector<double>& got, const Expected& expected) {
  if (std::vector<std::string> known = explanations(got, expected); !known.empty()) {
    told_explanations().push_back(known);
    return known[0];
  }
  const auto is_unwritten = [](double v) { return std::isfinite(v) && std::abs(v) > kUnwritten; };
  if (std::ranges::any_of(got, is_unwritten) &&
      largest_magnitude(expected.values) < 1e-3 * kUnwritten)
    return expected.what +
           ": made from memory that nothing was written to: Tensor::empty leaves what was there. "
           "Receive or compute first, then read";
  if (!all_finite(got))
    return expected.if_not_finite.empty() ? expected.what + ": not finite" : expected.if_not_finite;
  if (largest_magnitude(got) == 0.0 && largest_magnitude(expected.values) > 0.0)
    return expected.what + (got.size() == 1 ? ": zero" : ": all zero");
  const double factor = best_factor(got, expected.values);
  std::vector<double> multiple = expected.values;
  for (double& value : multiple) value *= factor;
  // Otherwise any number would be a tiny multiple of those that are far above their tolerance.
  Expected scaled{.what = expected.what, .values = {}, .tolerance = expected.tolerance};
  for (double& tolerance : scaled.tolerance) tolerance *= std::min(1.0, std::abs(factor));
  constexpr double kClose = 1e-5;  // to 1: rounding, which is no factor
  if (got.size() > 1 && factor != 0.0 && std::abs(factor - 1) > kClose &&
      distance(got, multiple, scaled) <= 1)
    return fmt::format("{}: {:.6g} times what they should be{}", expected.what, factor,
                       factor > 1   ? ": is a divisor missing, or something added up twice?"
                       : factor > 0 ? ": is a divisor too large, or a part missing?"
                                    : "");
  if (!expected.unexplained.empty()) return expected.unexplained;
  const std::vector<size_t> wrong = wrong_places(got, expected);
  if (2 * wrong.size() >= got.size() && is_roughly_right(got, expected.values))
    return expected.what +
           ": right in the first digits only: is something rounded, or added up in too narrow a "
           "type? Or does a small term, such as an epsilon, have the wrong value or the wrong "
           "place?";
  if (got.size() == 1) return expected.what + ": wrong";
  return expected.what + ": " + wrong_numbers(got, expected.values, wrong);
}

std::string in_digits(double value, int digits) {
  return std::isnan(value) ? "nan" : fmt::format("{:.{}g}", value, digits);  // no "-nan"
}

/// The element that exceeds its tolerance by most.
size_t worst(const std::vector<double>& got, const Expected& expected) {
  size_t worst = 0;
  double most = -1.0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return i;
    const double excess =
        std::abs(got[i] - expected.values[i]) / (tolerance_at(expected, i) + 1e-300);
    if (excess > most) {
      most = excess;
      worst = i;
    }
  }
  return worst;
}

}  // namespace

std::string difference(const std::vector<double>& got, const Expected& expected) {
  if (got.size() != expected.values.size())
    return fmt::format("{}: {} numbers were returned, there should be {}", expected.what,
                       got.size(), expected.values.size());
  if (is_right(got, expected)) return "";
  if (expected.slack) {
    Expected wider = expected;
    const double slack = std::exchange(wider.slack, {})();
    for (double& tolerance : wider.tolerance) tolerance += slack;
    return difference(got, wider);
  }
  const size_t i = worst(got, expected);
  const std::string name = expected.name ? expected.name(i) : "";
  int digits = 7;
  while (digits < 17 && in_digits(got[i], digits) == in_digits(expected.values[i], digits))
    ++digits;
  return fmt::format("{}\n{}{}got {}, expected {}", diagnosis(got, expected), name,
                     name.empty() ? "" : ": ", in_digits(got[i], digits),
                     in_digits(expected.values[i], digits));
}

std::vector<std::vector<std::string>> take_explanations() {
  return std::exchange(told_explanations(), {});
}

std::vector<double> to_doubles(const Tensor& tensor) {
  const std::span<float> values = tensor.values();
  return {values.begin(), values.end()};
}

std::vector<double> relative_tolerance(const std::vector<double>& values, double fraction,
                                       double floor) {
  std::vector<double> tolerance = values;
  for (double& t : tolerance) t = fraction * std::max(std::abs(t), floor);
  return tolerance;
}

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

Numbers largest_in_each_place(const std::vector<Numbers>& parts) {
  Numbers largest = parts[0];
  for (const Numbers& part : parts)
    for (size_t i = 0; i < part.size(); ++i) largest[i] = std::max(largest[i], part[i]);
  return largest;
}

}  // namespace lab::grading
