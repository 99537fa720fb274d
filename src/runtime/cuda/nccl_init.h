// src/runtime/cuda/nccl_init.h: initializes NCCL among the GPUs of several processes.
//
// NCCL would wait forever for a process that does not come. So its communicators are initialized
// without blocking, and polled until all are connected; at the time limit or a stop they are
// aborted. Later calls on such a communicator do not block either (NcclCommunicator::submit()).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/backend.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/nccl.h"
#include "src/runtime/cuda/nccl_connection.h"

namespace trainyard::cuda {

/// NCCL's message for a failed call, e.g. "unhandled system error: ... (NCCL error 2)".
std::string describe(const Nccl& nccl, ncclComm_t comm, ncclResult_t status);
/// NCCL's version, e.g. "2.28.9".
std::string version_of(const Nccl& nccl);

/// Returns a new value for ProcessGroup::id, valid for one init_among_processes() of all processes.
/// FAILED_PRECONDITION/NCCL_MISSING if this version cannot connect processes, or
/// UNAVAILABLE/RANKS_UNCONNECTED.
Result<std::string> draw_group_id(const Nccl& nccl);

/// Returns this process's communicators, one for each device, with ranks from group.first_rank on.
/// Errors are those of Backend::join().
Result<std::vector<std::unique_ptr<NcclConnection>>> init_among_processes(
    const Nccl& nccl, std::span<const Device* const> devices, const ProcessGroup& group);

}  // namespace trainyard::cuda
