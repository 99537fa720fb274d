#include "proto/metrics/packed_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace trainyard {
namespace {

bool is_float(double value) {
  return std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max()) &&
         static_cast<double>(static_cast<float>(value)) == value;
}

bool can_pack(const v1::MetricBatch& batch) {
  return batch.series_size() > 0 && std::ranges::all_of(batch.series(), [](const auto& series) {
           return series.steps_size() > 0 && series.steps_size() == series.values_size();
         });
}

// Steps of untrusted workers may be any number. Unsigned arithmetic wraps around, and sum()
// reverses difference().
int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

void pack_steps(const v1::MetricSeries& series, v1::PackedSeries& out) {
  const auto& steps = series.steps();
  out.set_first_step(steps[0]);
  if (steps.size() == 1) return;
  const int64_t gap = difference(steps[1], steps[0]);
  bool even = true;
  for (int i = 2; i < steps.size(); ++i) even &= difference(steps[i], steps[i - 1]) == gap;
  if (even) return out.add_gaps(gap);
  out.mutable_gaps()->Reserve(steps.size() - 1);
  for (int i = 1; i < steps.size(); ++i) out.add_gaps(difference(steps[i], steps[i - 1]));
}

void pack_values(const v1::MetricSeries& series, v1::PackedSeries& out) {
  const auto& values = series.values();
  if (!std::ranges::all_of(values, is_float)) {
    *out.mutable_doubles() = values;
    return;
  }
  out.mutable_floats()->Reserve(values.size());
  for (const double value : values) out.add_floats(static_cast<float>(value));
}

void unpack_series(v1::PackedSeries& packed, v1::MetricSeries& out) {
  const int count = packed.floats_size() + packed.doubles_size();
  const int gaps = packed.gaps_size();
  out.set_key(std::move(*packed.mutable_key()));
  out.mutable_steps()->Reserve(count);
  int64_t step = packed.first_step();
  out.add_steps(step);
  for (int i = 1; i < count; ++i) {
    step = sum(step, packed.gaps(gaps == 1 ? 0 : i - 1));
    out.add_steps(step);
  }
  if (packed.doubles_size() > 0) {
    out.mutable_values()->Swap(packed.mutable_doubles());
  } else {
    out.mutable_values()->Add(packed.floats().begin(), packed.floats().end());
  }
  out.mutable_non_finite()->Swap(packed.mutable_non_finite());
}

}  // namespace

void pack_metrics(v1::Event& event) {
  if (!event.has_metrics() || !can_pack(event.metrics())) return;
  v1::PackedMetrics packed;
  for (v1::MetricSeries& series : *event.mutable_metrics()->mutable_series()) {
    v1::PackedSeries& out = *packed.add_series();
    out.set_key(std::move(*series.mutable_key()));
    pack_steps(series, out);
    pack_values(series, out);
    out.mutable_non_finite()->Swap(series.mutable_non_finite());
  }
  *event.mutable_packed_metrics() = std::move(packed);
}

bool is_whole(const v1::PackedMetrics& metrics) {
  return std::ranges::all_of(metrics.series(), [](const auto& series) {
    const int count = series.floats_size() + series.doubles_size();
    const int gaps = series.gaps_size();
    return count > 0 && (series.floats_size() == 0 || series.doubles_size() == 0) &&
           (gaps == count - 1 || (gaps == 1 && count > 1));
  });
}

bool unpack_metrics(v1::Event& event) {
  if (!event.has_packed_metrics()) return true;
  if (!is_whole(event.packed_metrics())) return false;
  v1::MetricBatch metrics;
  for (v1::PackedSeries& series : *event.mutable_packed_metrics()->mutable_series()) {
    unpack_series(series, *metrics.add_series());
  }
  *event.mutable_metrics() = std::move(metrics);
  return true;
}

}  // namespace trainyard
