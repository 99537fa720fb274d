// server/dispatch/host_trouble.h: refusals of a training worker that say nothing about its job.
#pragma once

#include <string>

#include "server/protocol/enrolment.h"
#include "src/base/files.h"

namespace trainyard::server {

inline constexpr const char* kStorageError =
    "STORAGE_ERROR";  // what may be whole is not readable now

/// What people are told instead of the reason of such a refusal; empty for others. The disk is
/// full, or a file cannot be read or written just now. A missing file is away, as on a disk that is
/// not mounted: the store knows all that a training worker reads, and nothing is deleted that an
/// unfinished job needs. Or another rank has gone. `elsewhere`: or the place lacks what the
/// operator says it has.
inline std::string host_trouble_of(const std::string& reason, bool elsewhere) {
  const bool of_node =
      reason == "DEVICE_NOT_FOUND" || reason == "CUDA_MODULE_MISSING" || reason == "NCCL_MISSING";
  if (reason == "STORAGE_FULL" || is_of_ranks(reason) || (elsewhere && of_node)) return reason;
  return is_of_file_error(reason) || reason == "DATASET_NOT_FOUND" ? kStorageError : "";
}

}  // namespace trainyard::server
