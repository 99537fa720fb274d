#include "src/data/rank_correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace trainyard {
namespace {

/// A number, which becomes its rank, and the place of its pair.
struct Ranked {
  float value;
  size_t place;
};

/// Returns the rank of each number in its own place, less the mean rank.
std::vector<double> ranks_of(std::vector<Ranked> numbers) {
  std::ranges::sort(numbers, {}, &Ranked::value);
  std::vector<double> ranks(numbers.size());
  const double mean = (static_cast<double>(numbers.size()) - 1) / 2;
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    while (end < numbers.size() && numbers[end].value == numbers[first].value) ++end;
    const double rank = static_cast<double>(first + end - 1) / 2;
    for (size_t i = first; i < end; ++i) ranks[numbers[i].place] = rank - mean;
  }
  return ranks;
}

}  // namespace

double rank_correlation(const std::vector<std::pair<float, float>>& pairs) {
  std::vector<Ranked> first, second;
  for (size_t i = 0; i < pairs.size(); ++i) {
    first.push_back({pairs[i].first, i});
    second.push_back({pairs[i].second, i});
  }
  const std::vector<double> x = ranks_of(std::move(first)), y = ranks_of(std::move(second));
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += x[i] * x[i];
    yy += y[i] * y[i];
    xy += x[i] * y[i];
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace trainyard
