#include "src/runtime/cuda/fault.h"

namespace trainyard::cuda {

// Source: CUDA Runtime API reference, cudaError. What is not listed there as an error of the
// program counts as the device's: it is checked, and the job tried again.
CudaFault fault_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return CudaFault::kMemory;
    // A kernel went astray. The context is lost, the device is not.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorTensorMemoryLeak:
    // A call was wrong.
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidPtx:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalState:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorInvalidClusterSize:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread:
      return CudaFault::kProgram;
    default:
      return CudaFault::kDevice;
  }
}

CudaFault fault_of(cublasStatus_t status, cudaError_t pending) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return CudaFault::kMemory;
  if (pending != cudaSuccess) return fault_of(pending);
  return status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED ||
                 status == CUBLAS_STATUS_ARCH_MISMATCH
             ? CudaFault::kProgram
             : CudaFault::kDevice;
}

CudaFault fault_of(cudnnStatus_t status, cudaError_t pending) {
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    return CudaFault::kMemory;
  }
  if (pending != cudaSuccess) return fault_of(pending);
  // Thousands are the category: 2 a wrong parameter, 3 not supported.
  const int category = static_cast<int>(status) / 1000;
  return category == 2 || category == 3 ? CudaFault::kProgram : CudaFault::kDevice;
}

}  // namespace trainyard::cuda
