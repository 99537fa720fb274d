#include "src/runtime/cuda/backend.h"

#include <algorithm>
#include <new>
#include <string>

#include "src/base/check.h"
#include "src/plan/program.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {

CudaBackend::CudaBackend(int ordinal) : device_(ordinal) { table_.add(activation_kernels()); }

bool CudaBackend::has_kernel(std::string_view op_type) const { return table_.contains(op_type); }

std::unique_ptr<Kernel> CudaBackend::prepare(const Graph& graph, const Node& node) {
  device_.make_current();
  std::unique_ptr<Kernel> kernel = table_.make(device_, graph, node);
  TRAINYARD_CHECK(kernel->takes_bf16() || !touches_bf16(graph, node),
                  node.name + ": the cuda backend has no kernel for bf16");
  return kernel;
}

void* CudaBackend::allocate(int64_t bytes) {
  TRAINYARD_CHECK(bytes >= 0, "allocate(" + std::to_string(bytes) + ")");
  device_.make_current();
  const auto size = static_cast<size_t>(std::max(bytes, kArenaAlignment));
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, size);  // aligned to 256 bytes at least
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the next call must not find it
    throw std::bad_alloc();
  }
  check(status, "cudaMalloc of " + std::to_string(size) + " bytes");
  try {
    check(cudaMemsetAsync(memory, 0, size, device_.stream()), "zeroing the arena");
    device_.synchronize();
  } catch (...) {
    release(memory);
    throw;
  }
  return memory;
}

void CudaBackend::release(void* memory) noexcept {
  (void)cudaFree(memory);  // after a device error too: a failed free has nobody to tell
}

void CudaBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  device_.make_current();
  check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        device_.stream()),
        "copying to the GPU");
  device_.synchronize();  // the caller may reuse `host` at once
}

void CudaBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  device_.make_current();
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                        device_.stream()),
        "copying from the GPU");
  device_.synchronize();
}

void CudaBackend::synchronize() {
  device_.make_current();
  device_.synchronize();
}

}  // namespace trainyard::cuda
