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

/// Returns for each row whether it is drawn. `classes` has the class of each row, numbered from 0;
/// each class gives about `share` of its rows (src/data/class_draw.h), and never all of them.
std::vector<bool> draw_test_rows(std::span<const int32_t> classes, double share, uint64_t seed);

}  // namespace trainyard
