// src/runtime/cuda/fault.h: whose fault an error of CUDA or its libraries is.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "src/runtime/cuda_error.h"

namespace trainyard::cuda {

CudaFault fault_of(cudaError_t error);
/// `pending` is what CUDA itself says now: a library's "execution failed" is often its echo.
CudaFault fault_of(cublasStatus_t status, cudaError_t pending);
CudaFault fault_of(cudnnStatus_t status, cudaError_t pending);

}  // namespace trainyard::cuda
