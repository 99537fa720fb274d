// src/runtime/cuda/nccl.h: loads NCCL, which connects several GPUs. It is loaded only for jobs with
// several GPUs, since hosts with one GPU need not have it.
#pragma once

#include <nccl.h>

#include "src/base/result.h"

namespace trainyard::cuda {

/// The functions in use, with NCCL's own types.
struct Nccl {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclCommInitAll) comm_init_all;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
};

/// Loads libnccl.so.2, once per process. FAILED_PRECONDITION/NCCL_MISSING.
Result<const Nccl*> open_nccl();

}  // namespace trainyard::cuda
