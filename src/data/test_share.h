// src/data/test_share.h: draws rows at random for the test set.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// Refuses a `share` outside [0, 0.9], and one above 0 if there already is a test set. `field`
/// names it in messages.
Status check_test_share(double share, bool has_test, const std::string& field);

/// Returns true for the drawn rows. In each group (for example a class) the number of drawn rows is
/// `share` of its rows, rounded, but never all. They are drawn by Philox from (seed, "test_share",
/// group). `groups` has the group of each row, numbered from 0.
std::vector<bool> draw_test_rows(std::span<const int32_t> groups, double share, uint64_t seed);

}  // namespace trainyard
