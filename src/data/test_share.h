// src/data/test_share.h: rows that are drawn to be the test set.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// `share` in [0, 0.9], and none beside a test set that there is already. `field` names it in
/// messages.
Status check_test_share(double share, bool has_test, const std::string& field);

/// True for the drawn rows: of each group (a class, say) the nearest whole number to `share`, but
/// never all, by Philox from (seed, "test_share", group). `groups` has each row's, from 0.
std::vector<bool> draw_test_rows(std::span<const int32_t> groups, double share, uint64_t seed);

}  // namespace trainyard
