// src/runtime/cuda/kernels.h: the tables of the cuda backend, one per family file.
#pragma once

#include <span>

#include "src/runtime/cuda/device.h"
#include "src/runtime/kernel_table.h"

namespace trainyard::cuda {

using CudaEntry = KernelEntry<const Device>;

std::span<const CudaEntry> activation_kernels();
std::span<const CudaEntry> gemm_kernels();

}  // namespace trainyard::cuda
