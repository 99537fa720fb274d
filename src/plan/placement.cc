#include "src/plan/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace trainyard {

PlacedBuffers place_buffers(const std::vector<Buffer>& buffers) {
  std::vector<size_t> by_size(buffers.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) {
    return buffers[a].size_bytes > buffers[b].size_bytes;
  });
  PlacedBuffers placed{std::vector<int64_t>(buffers.size()), 0};
  std::vector<size_t> by_offset;  // placed so far
  for (const size_t b : by_size) {
    const Buffer& buffer = buffers[b];
    int64_t best_offset = -1;
    int64_t best_gap = std::numeric_limits<int64_t>::max();
    int64_t free_from = 0;
    for (const size_t other : by_offset) {
      if (buffers[other].last < buffer.first || buffer.last < buffers[other].first) continue;
      const int64_t gap = placed.offsets[other] - free_from;
      if (gap >= buffer.size_bytes && gap < best_gap) {
        best_gap = gap;
        best_offset = free_from;
      }
      free_from = std::max(free_from, placed.offsets[other] + buffers[other].size_bytes);
    }
    placed.offsets[b] = best_offset >= 0 ? best_offset : free_from;
    placed.size_bytes = std::max(placed.size_bytes, placed.offsets[b] + buffer.size_bytes);
    const auto at =
        std::upper_bound(by_offset.begin(), by_offset.end(), b,
                         [&](size_t x, size_t y) { return placed.offsets[x] < placed.offsets[y]; });
    by_offset.insert(at, b);
  }
  return placed;
}

}  // namespace trainyard
