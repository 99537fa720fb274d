// kernels/cuda/built_for.h: reports which GPUs the kernels were compiled for.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace trainyard::kernels::cuda {

/// The compute capabilities, lowest first: "8.0, 9.0".
std::string built_for();
/// Loads a kernel on the current device. Returns cudaErrorNoKernelImageForDevice if the build has
/// no code for the device; newer drivers may return other errors instead.
cudaError_t check_device_code();

}  // namespace trainyard::kernels::cuda
