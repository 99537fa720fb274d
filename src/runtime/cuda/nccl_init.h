// src/runtime/cuda/nccl_init.h: NCCL's start among the GPUs of several processes.
//
// NCCL itself would wait for ever for a process that does not come. So its communicators are made
// without blocking, and looked at until all are there, the limit is reached or the job is stopped;
// then they are aborted. Such a communicator's later calls do not block either
// (NcclCommunicator::submit()).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/backend.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/nccl.h"

namespace trainyard::cuda {

/// What NCCL says of a call that failed: "unhandled system error: ... (NCCL error 2)".
std::string describe(const Nccl& nccl, ncclComm_t comm, ncclResult_t status);
/// "2.28.9".
std::string version_of(const Nccl& nccl);

/// ProcessGroup::id, which is good for one init_among_processes() of all. FAILED_PRECONDITION/
/// NCCL_MISSING for a version that joins no processes, UNAVAILABLE/RANKS_UNCONNECTED.
Result<std::string> draw_group_id(const Nccl& nccl);

/// This process's communicators, one for each device, ranks group.first_rank and on. The caller
/// owns them. Refusals: Backend::join().
Result<std::vector<ncclComm_t>> init_among_processes(const Nccl& nccl,
                                                     std::span<const Device* const> devices,
                                                     const ProcessGroup& group);

}  // namespace trainyard::cuda
