// server/dispatch/host_trouble.h: classifies refusals of a training worker that are not caused by
// its job.
#pragma once

#include <string>

#include "server/protocol/enrolment.h"
#include "src/base/files.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {

inline constexpr const char* kStorageError =
    "STORAGE_ERROR";  // a file that may be intact is unreadable at the moment

/// Returns the reason to report if the host and not the job caused a refusal; empty for all other
/// refusals. The causes are: the disk is full; a file is temporarily unreadable or unwritable;
/// another rank was lost; the GPU driver or one of its services does not work. A missing file
/// counts as temporarily unavailable, as on a disk that is not mounted, because nothing deletes a
/// file that an unfinished job needs. For remote workers
/// (`is_remote`) a further cause is a node without a device or library that the operator said it
/// has.
inline std::string host_trouble_of(const std::string& reason, bool is_remote) {
  const bool of_node =
      reason == "DEVICE_NOT_FOUND" || reason == "CUDA_MODULE_MISSING" || reason == "NCCL_MISSING";
  if (reason == "STORAGE_FULL" || reason == kHostFault || is_of_ranks(reason) ||
      (is_remote && of_node)) {
    return reason;
  }
  return is_of_file_error(reason) || reason == "DATASET_NOT_FOUND" ? kStorageError : "";
}

}  // namespace trainyard::server
