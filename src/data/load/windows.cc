#include "src/data/load/windows.h"

#include <algorithm>

#include "src/data/class_draw.h"

namespace trainyard {

WindowPlan plan_windows(const DatasetSchema& schema, int64_t context_length,
                        double validation_fraction) {
  TRAINYARD_CHECK(schema.stream() && context_length > 0, "windows of a stream");
  const int64_t length = context_length;
  WindowPlan plan;
  // The last token of a text is only ever a target.
  const int64_t windows = std::max<int64_t>(schema.train_rows - 1, 0) / length;
  plan.validation = validation_row_count(windows, validation_fraction);
  plan.validation_first = schema.train_rows - 1 - plan.validation * length;
  const int64_t end = plan.validation > 0 ? plan.validation_first : schema.train_rows;
  const int64_t inputs = std::max<int64_t>(end - 1, 0);
  // Leaving room for a shift of up to length - 1 tokens costs at most one window; the only window
  // is never given up for it.
  plan.train = std::max((inputs - (length - 1)) / length, std::min<int64_t>(inputs / length, 1));
  plan.shift_max = plan.train > 0 ? std::min(length - 1, inputs - plan.train * length) : 0;
  plan.test = std::max<int64_t>(schema.test_rows - 1, 0) / length;
  return plan;
}

std::vector<int64_t> window_starts(int64_t first, int64_t count, int64_t context_length) {
  std::vector<int64_t> starts(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    starts[static_cast<size_t>(i)] = first + i * context_length;
  }
  return starts;
}

}  // namespace trainyard
