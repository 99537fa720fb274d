// src/runtime/cuda/fault.h: classifies errors of CUDA and its libraries by cause.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>

#include "src/runtime/cuda_error.h"

namespace trainyard::cuda {

CudaFault fault_of(cudaError_t error);
/// Like fault_of(), for the calls with which a process starts to use CUDA. Before the first kernel,
/// a general error such as "unknown error" comes from the driver's installation.
CudaFault start_fault_of(cudaError_t error);
/// Returns what an operator can do about an error whose fault is kHost, as a clause; empty for all
/// other errors.
std::string host_remedy(cudaError_t error);
/// `context` is the result of context_state() after the call: a library's "execution failed" often
/// only repeats an error of the context.
CudaFault fault_of(cublasStatus_t status, cudaError_t context);
CudaFault fault_of(cudnnStatus_t status, cudaError_t context);

/// Returns the error that has broken the current device's context, for every library of this
/// process; cudaSuccess while it is intact. Never waits, and may be called during a stream capture.
cudaError_t context_state();

}  // namespace trainyard::cuda
