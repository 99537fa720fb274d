#include "src/runtime/cuda/fault.h"

namespace trainyard::cuda {

// Source: CUDA Runtime API reference, cudaError. Errors that are not listed here as faults of the
// program count as faults of the device: it is checked, and the job is retried.
CudaFault fault_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return CudaFault::kMemory;
    // Another process has the context in exclusive compute mode, or the mode prohibits contexts.
    case cudaErrorDevicesUnavailable:
      return CudaFault::kBusy;
    // Faults of a kernel: the context is lost, but the device is not.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorTensorMemoryLeak:
    // Invalid calls.
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
  // The thousands are the category: 2 means a wrong parameter, 3 not supported.
  const int category = static_cast<int>(status) / 1000;
  return category == 2 || category == 3 ? CudaFault::kProgram : CudaFault::kDevice;
}

cudaError_t context_state() {
  // The last error of our statically linked runtime would not suffice, since the libraries have
  // their own runtime and their errors are not in ours. The legacy stream has no work, and our
  // streams do not wait for it, so querying it has no side effects. A captured stream must not be
  // queried.
  const cudaError_t state = cudaStreamQuery(cudaStreamLegacy);
  if (state == cudaSuccess) return state;
  (void)cudaGetLastError();  // clears the error of the query; an error of the context persists
  switch (state) {
    case cudaErrorNotReady:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorNoDevice:  // without a context none is broken: cuDNN can be used without a GPU
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      return cudaSuccess;
    default:
      return state;
  }
}

}  // namespace trainyard::cuda
