// src/runtime/cpu_kernels.h: the tables of the cpu backend, one per family file.
#pragma once

#include <span>

#include "kernels/cpu/team.h"
#include "src/runtime/kernel_table.h"

namespace trainyard {

struct CpuContext {
  explicit CpuContext(int threads) : team(threads) {}
  kernels::cpu::Team team;  // fixed for the job: results depend on its size
};
using CpuEntry = KernelEntry<CpuContext>;

/// Faults for what this backend does not compute in: it is F32 alone, F64 is the reference's.
inline void require_f32(const Node& node, const TensorInfo& t) {
  TRAINYARD_CHECK(
      t.type.dtype == DType::kF32,
      node.name + ": the cpu backend computes in F32, not " + std::string(name_of(t.type.dtype)));
}

std::span<const CpuEntry> cpu_elementwise_kernels();
std::span<const CpuEntry> cpu_activation_kernels();
std::span<const CpuEntry> cpu_box_kernels();
std::span<const CpuEntry> cpu_dense_kernels();
std::span<const CpuEntry> cpu_image_kernels();
std::span<const CpuEntry> cpu_sequence_kernels();
std::span<const CpuEntry> cpu_training_kernels();
std::span<const CpuEntry> cpu_update_kernels();

}  // namespace trainyard
