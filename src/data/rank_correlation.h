// src/data/rank_correlation.h: Spearman's correlation, which is 1 for any formula that only rises.
#pragma once

#include <utility>
#include <vector>

namespace trainyard {

/// Returns the correlation of the ranks of the pairs' two numbers, where equal numbers share the
/// mean of their ranks; 0 if all first or all second numbers are equal.
/// Source: Spearman, "The Proof and Measurement of Association between Two Things" (1904).
double rank_correlation(const std::vector<std::pair<float, float>>& pairs);

}  // namespace trainyard
