// server/planning/open_batch.h: specs that say `batch_size: auto`, which the wire has as 0.
#pragma once

#include <cstdint>

#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

bool batch_size_is_open(const v1::JobSpec& spec);
/// Returns the least size that micro-batches and GPUs of the spec divide.
int64_t batch_unit(const v1::JobSpec& spec);

/// Gives a fork that says `auto` its parent's number, which may have been chosen.
void keep_batch_size(const v1::JobSpec& parent, v1::JobSpec& fork);

}  // namespace trainyard::server
