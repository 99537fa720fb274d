#include "src/plan/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace trainyard {
namespace {

struct Range {
  int64_t begin, end;  // bytes; `end` is not included
};

/// The bytes in use, as the smallest number of ranges: ranges that touch are merged. The buffers of
/// a network are stacked without gaps, so a few ranges represent thousands of buffers.
class Ranges {
 public:
  void add(Range r) {
    const auto first = std::ranges::lower_bound(ranges_, r.begin, {}, &Range::end);
    auto behind = first;
    for (; behind != ranges_.end() && behind->begin <= r.end; ++behind) {
      r = {std::min(r.begin, behind->begin), std::max(r.end, behind->end)};
    }
    if (first == behind) {
      ranges_.insert(first, r);
    } else {
      *first = r;
      ranges_.erase(first + 1, behind);
    }
  }
  const std::vector<Range>& by_offset() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

/// Merges sorted lists of ranges into one, pair by pair.
class RangeMerger {
 public:
  void clear() {
    ranges_.clear();
    ends_.clear();
  }
  void add(const std::vector<Range>& sorted) {
    if (sorted.empty()) return;
    ranges_.insert(ranges_.end(), sorted.begin(), sorted.end());
    ends_.push_back(ranges_.size());
  }
  const std::vector<Range>& merged() {
    while (ends_.size() > 1) {
      merged_.clear();
      merged_ends_.clear();
      size_t begin = 0;
      for (size_t i = 0; i < ends_.size(); i += 2) {
        const size_t middle = ends_[i];
        const size_t end = i + 1 < ends_.size() ? ends_[i + 1] : middle;
        merge(begin, middle, end);
        begin = end;
      }
      std::swap(ranges_, merged_);
      std::swap(ends_, merged_ends_);
    }
    return ranges_;
  }

 private:
  void merge(size_t a, size_t middle, size_t end) {
    const size_t first = merged_.size();
    for (size_t b = middle; a < middle || b < end;) {
      const bool takes_a = b == end || (a < middle && ranges_[a].begin <= ranges_[b].begin);
      const Range r = ranges_[takes_a ? a++ : b++];
      if (merged_.size() > first && r.begin <= merged_.back().end) {
        merged_.back().end = std::max(merged_.back().end, r.end);
      } else {
        merged_.push_back(r);
      }
    }
    merged_ends_.push_back(merged_.size());
  }

  std::vector<Range> ranges_, merged_;      // all lists, one after another
  std::vector<size_t> ends_, merged_ends_;  // end of each list
};

/// The bytes in use at each step: a segment tree over the steps. A buffer is added to O(log steps)
/// nodes, and O(log steps) nodes give the bytes in use during a range of steps.
class Timeline {
 public:
  explicit Timeline(int64_t steps) {
    while (leaves_ < steps) leaves_ *= 2;
    nodes_.resize(static_cast<size_t>(2 * leaves_));
  }

  void add(const Buffer& buffer, Range bytes) { add(1, 0, leaves_ - 1, buffer, bytes); }

  /// Returns the ranges in use at any of the buffer's steps, sorted by offset.
  const std::vector<Range>& find_used(const Buffer& buffer) {
    found_.clear();
    find(1, 0, leaves_ - 1, buffer);
    return found_.merged();
  }

 private:
  struct Node {
    // in use at one or more of the node's steps, except what `all` of an ancestor contains
    Ranges any;
    Ranges all;  // in use at all of the node's steps
  };

  static bool is_apart(const Buffer& buffer, int64_t first, int64_t last) {
    return buffer.last < first || last < buffer.first;
  }

  void add(size_t k, int64_t first, int64_t last, const Buffer& buffer, Range bytes) {
    if (is_apart(buffer, first, last)) return;
    nodes_[k].any.add(bytes);
    if (buffer.first <= first && last <= buffer.last) return nodes_[k].all.add(bytes);
    const int64_t middle = first + (last - first) / 2;
    add(2 * k, first, middle, buffer, bytes);
    add(2 * k + 1, middle + 1, last, buffer, bytes);
  }

  void find(size_t k, int64_t first, int64_t last, const Buffer& buffer) {
    if (is_apart(buffer, first, last)) return;
    if (buffer.first <= first && last <= buffer.last) {
      return found_.add(nodes_[k].any.by_offset());
    }
    found_.add(nodes_[k].all.by_offset());
    const int64_t middle = first + (last - first) / 2;
    find(2 * k, first, middle, buffer);
    find(2 * k + 1, middle + 1, last, buffer);
  }

  int64_t leaves_ = 1;
  std::vector<Node> nodes_;  // 1 is the root; node k has the children 2k and 2k + 1
  RangeMerger found_;
};

/// Returns the start of the smallest gap in `used` that fits, or the first byte after all ranges.
int64_t find_offset(const std::vector<Range>& used, int64_t size_bytes) {
  int64_t best_offset = -1;
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  int64_t free_from = 0;
  for (const Range& range : used) {
    const int64_t gap = range.begin - free_from;
    if (gap >= size_bytes && gap < best_gap) {
      best_gap = gap;
      best_offset = free_from;
    }
    free_from = std::max(free_from, range.end);
  }
  return best_offset >= 0 ? best_offset : free_from;
}

}  // namespace

PlacedBuffers place_buffers(const std::vector<Buffer>& buffers, const std::stop_token& stop) {
  std::vector<size_t> by_size(buffers.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) {
    return buffers[a].size_bytes > buffers[b].size_bytes;
  });
  int64_t steps = 0;
  for (const Buffer& buffer : buffers) steps = std::max(steps, buffer.last + 1);
  Timeline timeline(steps);
  PlacedBuffers placed{std::vector<int64_t>(buffers.size()), 0};
  for (const size_t b : by_size) {
    const Buffer& buffer = buffers[b];
    if (stop.stop_requested()) break;
    if (buffer.size_bytes == 0)
      break;  // buffers are sorted by size, so the remaining ones are empty, too
    const int64_t offset = find_offset(timeline.find_used(buffer), buffer.size_bytes);
    placed.offsets[b] = offset;
    placed.size_bytes = std::max(placed.size_bytes, offset + buffer.size_bytes);
    timeline.add(buffer, {offset, offset + buffer.size_bytes});
  }
  return placed;
}

}  // namespace trainyard
