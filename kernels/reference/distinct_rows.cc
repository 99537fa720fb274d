#include "kernels/distinct_rows.h"

#include <algorithm>
#include <unordered_map>

namespace trainyard::kernels::reference {

template <typename T>
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run<T>) {
  check(p, o);
  std::unordered_map<int32_t, int32_t> places;
  const auto add = [&](int32_t v) {
    const auto place = static_cast<int32_t>(places.size());
    if (places.emplace(v, place).second) o.rows[place] = v;
  };
  for (int64_t j = 0; o.continues_step() && j < p.size && o.kept[j] >= 0; ++j) add(o.kept[j]);
  for (int64_t m = 0; m < p.counted; ++m) add(o.counted[m]);
  std::fill(o.rows + places.size(), o.rows + p.size, -1);
  for (int64_t i = 0; i < p.count; ++i) o.position[i] = places.at(o.index[i]);
  if (o.kept != nullptr) std::copy_n(o.rows, p.size, o.kept);
}

template void distinct_rows<float>(const DistinctRowsParams&, const DistinctRowsOperands&,
                                   Run<float>);
template void distinct_rows<double>(const DistinctRowsParams&, const DistinctRowsOperands&,
                                    Run<double>);

}  // namespace trainyard::kernels::reference
