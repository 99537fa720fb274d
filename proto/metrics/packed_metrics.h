// proto/metrics/packed_metrics.h: the metrics of an event in a third of the bytes, for the store,
// for watchers that ask for it, and back. Steps are kept as what lies between them, and values as
// floats where they are floats, which takes 4 to 8 bytes of a point in place of 11.
#pragma once

#include "trainyard/v1/job_service.pb.h"

namespace trainyard {

/// `metrics` becomes `packed_metrics`. An event without metrics stays as it is, and one that is not
/// as the contract says: a series without points, or with more steps than values or fewer.
void pack_metrics(v1::Event& event);

/// False if a series is damaged: no values, floats and doubles, or a number of gaps that does not
/// fit.
bool is_whole(const v1::PackedMetrics& metrics);

/// `packed_metrics` becomes `metrics` again; an event without them stays as it is. False if they
/// are not whole.
bool unpack_metrics(v1::Event& event);

}  // namespace trainyard
