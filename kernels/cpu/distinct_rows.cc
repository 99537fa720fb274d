#include "kernels/distinct_rows.h"

#include <algorithm>

#include "kernels/cpu/places.h"

namespace trainyard::kernels::cpu {

int64_t distinct_rows_workspace_bytes(const DistinctRowsParams& p) {
  return Places::bytes_for(p.size);
}

void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run run) {
  check(p, o);
  Places places(p.size, workspace_of<int32_t>("distinct_rows", run));
  const auto add = [&](int32_t v) {
    const int64_t at = places.count();
    if (places.add(v)) o.rows[at] = v;
  };
  for (int64_t j = 0; o.continues_step() && j < p.size && o.kept[j] >= 0; ++j) add(o.kept[j]);
  for (int64_t m = 0; m < p.counted; ++m) add(o.counted[m]);
  std::fill(o.rows + places.count(), o.rows + p.size, -1);
  for (int64_t i = 0; i < p.count; ++i) o.position[i] = places.of(o.index[i]);
  if (o.kept != nullptr) std::copy_n(o.rows, p.size, o.kept);
}

}  // namespace trainyard::kernels::cpu
