// Catches: a GPU blamed for a kernel's fault, a kernel blamed for a GPU's fault, and a fault that
// does not name its node.
#include "src/runtime/cuda/fault.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "src/graph/op.h"
#include "src/runtime/cuda/backend.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard::cuda {
namespace {

TEST(CudaFault, TellsWhoseItIs) {
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorHardwareStackError, cudaErrorNvlinkUncorrectable,
        cudaErrorContained, cudaErrorNoDevice, cudaErrorUnknown}) {
    EXPECT_EQ(fault_of(error), CudaFault::kDevice) << error;
  }
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorAssert,
        cudaErrorLaunchFailure, cudaErrorInvalidValue, cudaErrorStreamCaptureUnsupported}) {
    EXPECT_EQ(fault_of(error), CudaFault::kProgram) << error;
  }
  for (const cudaError_t error :
       {cudaErrorSystemNotReady, cudaErrorSystemDriverMismatch, cudaErrorCompatNotSupportedOnDevice,
        cudaErrorInsufficientDriver, cudaErrorStubLibrary, cudaErrorMpsConnectionFailed}) {
    EXPECT_EQ(fault_of(error), CudaFault::kHost) << error;
    EXPECT_EQ(start_fault_of(error), CudaFault::kHost) << error;
    EXPECT_NE(host_remedy(error), "") << error;
  }
  EXPECT_EQ(fault_of(cudaErrorMemoryAllocation), CudaFault::kMemory);
  EXPECT_EQ(fault_of(cudaErrorDevicesUnavailable), CudaFault::kBusy);
}

// In the middle of a job, the GPU may be the cause of an unknown error.
TEST(CudaFault, AGeneralErrorIsTheHostsOnlyWhenCudaStarts) {
  for (const cudaError_t error :
       {cudaErrorInitializationError, cudaErrorUnknown, cudaErrorOperatingSystem}) {
    EXPECT_EQ(fault_of(error), CudaFault::kDevice) << error;
    EXPECT_EQ(start_fault_of(error), CudaFault::kHost) << error;
  }
  EXPECT_EQ(start_fault_of(cudaErrorECCUncorrectable), CudaFault::kDevice);
  EXPECT_EQ(start_fault_of(cudaErrorDevicesUnavailable), CudaFault::kBusy);
  EXPECT_EQ(host_remedy(cudaErrorECCUncorrectable), "");
}

TEST(CudaFault, OfALibraryIsWhatHasBrokenTheContext) {
  EXPECT_EQ(fault_of(CUBLAS_STATUS_EXECUTION_FAILED, cudaErrorIllegalAddress), CudaFault::kProgram);
  EXPECT_EQ(fault_of(CUBLAS_STATUS_EXECUTION_FAILED, cudaErrorECCUncorrectable),
            CudaFault::kDevice);
  EXPECT_EQ(fault_of(CUBLAS_STATUS_EXECUTION_FAILED, cudaSuccess), CudaFault::kDevice);
  EXPECT_EQ(fault_of(CUBLAS_STATUS_NOT_SUPPORTED, cudaSuccess), CudaFault::kProgram);
  EXPECT_EQ(fault_of(CUBLAS_STATUS_ALLOC_FAILED, cudaSuccess), CudaFault::kMemory);
  EXPECT_EQ(fault_of(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, cudaSuccess), CudaFault::kProgram);
  EXPECT_EQ(fault_of(CUDNN_STATUS_BAD_PARAM, cudaSuccess), CudaFault::kProgram);
  EXPECT_EQ(fault_of(CUDNN_STATUS_EXECUTION_FAILED, cudaErrorAssert), CudaFault::kProgram);
  EXPECT_EQ(fault_of(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, cudaSuccess),
            CudaFault::kMemory);
}

template <typename Status>
CudaError error_of(Status status) {
  try {
    check(status, "a library's call");
  } catch (const CudaError& e) {
    return e;
  }
  throw std::logic_error("it did not fail");
}

// A library's failed launch does not set the last error of the runtime that the backend links.
TEST(CudaFault, OfALibraryIsAskedOfTheContext) {
  const Device device(0);
  struct Case {
    cudaError_t error;
    CudaFault fault;
  };
  for (const Case c : {Case{cudaErrorIllegalAddress, CudaFault::kProgram},
                       Case{cudaErrorECCUncorrectable, CudaFault::kDevice}}) {
    testing::set_fault_after(0, c.error);
    ASSERT_EQ(cudaPeekAtLastError(), cudaSuccess);
    const CudaError blas = error_of(CUBLAS_STATUS_EXECUTION_FAILED);
    EXPECT_EQ(blas.fault(), c.fault);
    EXPECT_EQ(blas.code(), CUBLAS_STATUS_EXECUTION_FAILED);
    EXPECT_NE(std::string(blas.what()).find("(error " + std::to_string(c.error) + ")"),
              std::string::npos)
        << blas.what();
    // Calls that fail afterwards are attributed to the same fault.
    EXPECT_EQ(error_of(CUDNN_STATUS_NOT_SUPPORTED).fault(), c.fault);
  }
  testing::set_fault_after(-1);
  EXPECT_EQ(error_of(CUDNN_STATUS_NOT_SUPPORTED).fault(), CudaFault::kProgram);
  EXPECT_EQ(std::string(error_of(CUDNN_STATUS_BAD_PARAM).what()).find("CUDA reports"),
            std::string::npos);
}

/// The error message of a case whose n-th work is an illegal access; empty if it has fewer works.
std::string message_of_fault(int64_t n) {
  const testing::GraphCase& test = testing::graph_cases().front();
  CudaBackend cuda(0);
  testing::set_fault_after(n, cudaErrorIllegalAddress);
  std::string message;
  try {
    testing::run_case(test.build(DType::kF32), cuda, {});
  } catch (const CudaError& e) {
    EXPECT_EQ(e.fault(), CudaFault::kProgram);
    EXPECT_EQ(e.code(), cudaErrorIllegalAddress);
    message = e.what();
  }
  testing::set_fault_after(-1);
  return message;
}

TEST(CudaFault, OfALaunchNamesItsNode) {
  const std::string op(testing::graph_cases().front().build(DType::kF32).graph.node(0).op->type());
  bool any_node = false;
  for (int64_t n = 1; !any_node; ++n) {  // copies come first
    const std::string message = message_of_fault(n);
    ASSERT_NE(message, "") << "all works were done";
    any_node = message.find("(" + op + "): an illegal memory access") != std::string::npos;
  }
}

// The runtime may have an uncleared error of an earlier call, such as a failed trial of an
// algorithm.
TEST(CudaFault, OfAnEarlierCallDoesNotEndTheNextKernel) {
  const testing::GraphCase& test = testing::graph_cases().front();
  CudaBackend cuda(0);
  testing::leave_error(cudaErrorInvalidValue);
  EXPECT_NO_THROW(testing::run_case(test.build(DType::kF32), cuda, {}));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace trainyard::cuda
