#include "src/runtime/cuda/fault.h"

namespace trainyard::cuda {

// Source: CUDA Runtime API reference, cudaError. What is not listed there as an error of the
// program counts as the device's: it is checked, and the job tried again.
CudaFault fault_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return CudaFault::kMemory;
    // Exclusive compute mode, and another process has the context; or no process may have one.
    case cudaErrorDevicesUnavailable:
      return CudaFault::kBusy;
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

CudaFault fault_of(cublasStatus_t status, cudaError_t context) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return CudaFault::kMemory;
  if (context != cudaSuccess) return fault_of(context);
  return status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED ||
                 status == CUBLAS_STATUS_ARCH_MISMATCH
             ? CudaFault::kProgram
             : CudaFault::kDevice;
}

CudaFault fault_of(cudnnStatus_t status, cudaError_t context) {
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    return CudaFault::kMemory;
  }
  if (context != cudaSuccess) return fault_of(context);
  // Thousands are the category: 2 a wrong parameter, 3 not supported.
  const int category = static_cast<int>(status) / 1000;
  return category == 2 || category == 3 ? CudaFault::kProgram : CudaFault::kDevice;
}

cudaError_t context_state() {
  // The last error of our runtime would not do: it is linked statically, the libraries have their
  // own, and what these ran into is not in it. The legacy stream has no work, and our streams do
  // not wait for it, so asking it disturbs nothing; a captured stream must not be asked.
  const cudaError_t state = cudaStreamQuery(cudaStreamLegacy);
  if (state == cudaSuccess) return state;
  (void)cudaGetLastError();  // "not ready" counts as an error there; one that stays, stays
  switch (state) {
    case cudaErrorNotReady:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorNoDevice:  // no context, so none is broken: cuDNN can be asked without a GPU
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      return cudaSuccess;
    default:
      return state;
  }
}

}  // namespace trainyard::cuda
