// src/runtime/cuda/boxes.cc: activations, movement, resampling, arithmetic and reductions.
#include <utility>

#include "src/runtime/common/activation_kernels.h"
#include "src/runtime/common/box_kernels.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {

/// A resampling with its lists on the device.
struct Resampling {
  kernels::ResampleParams params;
  DeviceMemory tables;
};

// The shared kernel makers find these functions by argument-dependent lookup.
static Resampling prepared(const Device& device, kernels::ResampleParams p) {
  DeviceMemory tables = device.upload(kernels::cuda::resample_tables(p));
  return {std::move(p), std::move(tables)};
}

static void resample(const Resampling& r, kernels::cuda::In x, kernels::cuda::Out y,
                     kernels::cuda::Run run) {
  kernels::cuda::resample(r.params, r.tables.get(), x, y, run);
}

std::span<const CudaEntry> activation_kernels() {
  return trainyard::activation_kernels<const Device>();
}

std::span<const CudaEntry> box_kernels() {
  return trainyard::box_kernels<const Device, kernels::cuda::reduce_workspace_bytes,
                                kernels::cuda::reduce_grad_workspace_bytes>();
}

}  // namespace trainyard::cuda
