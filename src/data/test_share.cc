#include "src/data/test_share.h"

#include "src/data/class_draw.h"
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

std::vector<bool> draw_test_rows(std::span<const int32_t> classes, double share, uint64_t seed) {
  return draw_by_class(classes, share, {seed, "test_share"});
}

}  // namespace trainyard
