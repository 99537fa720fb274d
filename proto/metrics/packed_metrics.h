// proto/metrics/packed_metrics.h: converts an event's metrics to a form with a third of the bytes
// and back, for the store and for watchers that request it. It stores differences between steps,
// and values as float32 where that is exact, which takes 4 to 8 bytes per point instead of 11.
#pragma once

#include "trainyard/v1/job_service.pb.h"

namespace trainyard {

/// Replaces `metrics` by `packed_metrics`. Leaves an event unchanged if it has no metrics or
/// violates the API: a series without points, or with different numbers of steps and values.
void pack_metrics(v1::Event& event);

/// Returns false if a series is damaged: it has no values, both floats and doubles, or a wrong
/// number of gaps.
bool is_whole(const v1::PackedMetrics& metrics);

/// Replaces `packed_metrics` by `metrics`; leaves an event without them unchanged. Returns false if
/// is_whole() does.
bool unpack_metrics(v1::Event& event);

}  // namespace trainyard
