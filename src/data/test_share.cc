#include "src/data/test_share.h"

#include <algorithm>
#include <cmath>

#include "src/base/philox.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {

Status check_test_share(double share, bool has_test, const std::string& field) {
  if (!(share >= 0 && share <= kTestShareMax)) {  // also refuses NaN
    return dataset_error(field, std::to_string(share) + " is out of range, expected 0 to 0.9");
  }
  if (share > 0 && has_test) {
    return dataset_error(
        field, "there already is a test set, in its own files, arrays or folder; remove one");
  }
  return {};
}

std::vector<bool> draw_test_rows(std::span<const int32_t> groups, double share, uint64_t seed) {
  std::vector<bool> drawn(groups.size());
  const int32_t last = groups.empty() ? -1 : std::ranges::max(groups);
  std::vector<std::vector<size_t>> rows(static_cast<size_t>(last + 1));
  for (size_t i = 0; i < groups.size(); ++i) rows[static_cast<size_t>(groups[i])].push_back(i);
  for (size_t g = 0; g < rows.size(); ++g) {
    const int64_t count = std::ssize(rows[g]);
    const int64_t taken =
        std::min<int64_t>(std::llround(share * static_cast<double>(count)), count - 1);
    const std::vector<int64_t> order = permutation(count, seed, stream_of("test_share"), g);
    for (int64_t i = 0; i < taken; ++i) {
      drawn[rows[g][static_cast<size_t>(order[static_cast<size_t>(i)])]] = true;
    }
  }
  return drawn;
}

}  // namespace trainyard
