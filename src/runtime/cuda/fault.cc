#include "src/runtime/cuda/fault.h"

#include <algorithm>
#include <iterator>

namespace trainyard::cuda {
namespace {

/// An error that is caused by the host's driver or services, and the remedy as a clause.
struct HostError {
  cudaError_t error;
  bool only_at_start;  // after the start of CUDA the device may cause it, too
  const char* remedy;
};
// Sources: CUDA Runtime API reference, cudaError, for the meanings; NVIDIA's Fabric Manager user
// guide (802), "CUDA Compatibility" (803, 804) and the Linux installation guide (device nodes) for
// the remedies.
constexpr HostError kHostErrors[] = {
    {cudaErrorSystemNotReady, false,
     "the GPUs of this host are connected by NVSwitch and wait for NVIDIA's Fabric Manager: "
     "install it in the driver's version and start it (systemctl start nvidia-fabricmanager)"},
    {cudaErrorSystemDriverMismatch, false,
     "the loaded kernel module and the driver's libraries have different versions, as after an "
     "upgrade of the driver: reboot the host, or unload and load the nvidia modules"},
    {cudaErrorCompatNotSupportedOnDevice, false,
     "the libraries of a cuda-compat package are used on a GPU that they do not support: remove "
     "them from the library path, or install a newer driver"},
    {cudaErrorInsufficientDriver, false, "install a newer driver"},
    {cudaErrorCallRequiresNewerDriver, false, "install a newer driver"},
    {cudaErrorStubLibrary, false,
     "the library path finds the toolkit's stub of libcuda.so: remove the stubs folder from it, "
     "and install the driver"},
    {cudaErrorJitCompilerNotFound, false,
     "install the driver's library libnvidia-ptxjitcompiler.so in the driver's version"},
    {cudaErrorDeviceNotLicensed, false,
     "the virtual GPU has no license: configure its license server (nvidia-gridd)"},
    {cudaErrorMpsConnectionFailed, false,
     "start the MPS control daemon (nvidia-cuda-mps-control -d), or unset its CUDA_MPS variables"},
    {cudaErrorMpsServerNotReady, false, "the MPS server does not work: restart its control daemon"},
    {cudaErrorMpsRpcFailure, false, "the MPS server does not answer: restart its control daemon"},
    {cudaErrorMpsMaxClientsReached, false,
     "the MPS server has as many clients as it accepts: end some of them"},
    {cudaErrorMpsMaxConnectionsReached, false,
     "the MPS server has as many connections as it accepts: end some of its clients"},
    {cudaErrorInitializationError, true,
     "the driver does not start: check nvidia-smi and the kernel log (dmesg | grep NVRM), then "
     "load the driver's modules again or reboot the host"},
    {cudaErrorNoDevice, true,
     "the driver shows this process no GPU: if nvidia-smi does not list it either, it has failed "
     "(dmesg | grep NVRM); else check the permissions of /dev/nvidia* and what the container "
     "passes on"},
    {cudaErrorStartupFailure, true,
     "the driver does not start: check nvidia-smi and the kernel log (dmesg | grep NVRM)"},
    {cudaErrorOperatingSystem, true,
     "a system call of the driver failed: check the permissions of /dev/nvidia* and the limits of "
     "this process"},
    {cudaErrorUnknown, true,
     "most often the module nvidia_uvm is not loaded, as after a suspend, or /dev/nvidia-uvm "
     "cannot be opened: run nvidia-modprobe -u -c=0, or load the module again"},
};

const HostError* find_host_error(cudaError_t error) {
  const HostError* const found = std::ranges::find(kHostErrors, error, &HostError::error);
  return found == std::end(kHostErrors) ? nullptr : found;
}

}  // namespace

// Source: CUDA Runtime API reference, cudaError. Errors that are not listed here as faults of the
// program or the host count as faults of the device: it is checked, and the job is retried.
CudaFault fault_of(cudaError_t error) {
  if (const HostError* const host = find_host_error(error);
      host != nullptr && !host->only_at_start) {
    return CudaFault::kHost;
  }
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

CudaFault start_fault_of(cudaError_t error) {
  return find_host_error(error) != nullptr ? CudaFault::kHost : fault_of(error);
}

std::string host_remedy(cudaError_t error) {
  const HostError* const host = find_host_error(error);
  return host != nullptr ? host->remedy : "";
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
