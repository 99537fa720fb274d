// src/runtime/cuda/fault.h: whose fault an error of CUDA or its libraries is.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "src/runtime/cuda_error.h"

namespace trainyard::cuda {

CudaFault fault_of(cudaError_t error);
/// `context` is context_state() behind the call: a library's "execution failed" is often its echo.
CudaFault fault_of(cublasStatus_t status, cudaError_t context);
CudaFault fault_of(cudnnStatus_t status, cudaError_t context);

/// The error that has broken the current device's context, for every library of this process;
/// cudaSuccess while it is sound. Never waits, and may be asked while a stream is captured.
cudaError_t context_state();

}  // namespace trainyard::cuda
