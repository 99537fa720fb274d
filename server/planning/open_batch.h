// server/planning/open_batch.h: specs with `batch_size: auto`, which is 0 in the protobuf message.
#pragma once

#include <cstdint>

#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

bool batch_size_is_open(const v1::JobSpec& spec);
/// Returns the smallest batch size that is divisible by the spec's numbers of micro-batches and of
/// GPUs.
int64_t batch_unit(const v1::JobSpec& spec);

/// Sets the batch size of a fork that says `auto` to that of its parent, which may have been chosen
/// automatically.
void keep_batch_size(const v1::JobSpec& parent, v1::JobSpec& fork);

}  // namespace trainyard::server
