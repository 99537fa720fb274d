// src/runtime/cpu/kernels.h: the kernel tables of the cpu backend, one per family file.
#pragma once

#include <memory>
#include <span>

#include "kernels/cpu/team.h"
#include "kernels/elementwise.h"
#include "kernels/half.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/half_kernel.h"

namespace trainyard {

struct CpuContext {
  explicit CpuContext(int threads) : team(threads) {}
  kernels::cpu::Team team;  // its size is fixed for a job, since results depend on it
};
/// Converts between storage types, and copies within one (half_kernel.h).
struct CpuConversion {
  kernels::cpu::Team* team;
  template <typename Half>
  void widen(int64_t count, const Half* x, float* y) const {
    kernels::cpu::widen(count, x, y, *team);
  }
  template <typename Half>
  void narrow(int64_t count, const float* x, Half* y) const {
    kernels::cpu::narrow(count, x, y, *team);
  }
  void copy(int64_t bytes, const std::byte* x, std::byte* y) const {
    kernels::cpu::copy(bytes, x, y, *team);
  }
  int parts_max() const { return team->size(); }
  /// Calls f(part, begin, end) on disjoint ranges, each part on its own thread.
  template <typename F>
  void for_parts(int64_t count, const F& f) const {
    const int parts = static_cast<int>(
        std::clamp<int64_t>(count / (kernels::cpu::kElementsPerThread / 4), 1, team->size()));
    team->run(parts, [&](int part) {
      const kernels::cpu::Range range = kernels::cpu::part_of(count, part, parts);
      f(part, range.begin, range.end);
    });
  }
};
inline CpuConversion conversion_of(CpuContext& context) { return {&context.team}; }

using CpuEntry = KernelEntry<CpuContext>;

/// Fails a check unless the tensor is F32, the only type that this backend computes in; the
/// reference backend also computes in F64.
inline void require_f32(const Node& node, const TensorInfo& t) {
  TRAINYARD_CHECK(
      t.type.dtype == DType::kF32,
      node.name + ": the cpu backend computes in F32, not " + std::string(name_of(t.type.dtype)));
}

/// Makes a kernel that copies input 0 to output 0, each in its stored type.
inline std::unique_ptr<Kernel> make_copy(CpuContext& context, const Graph& g, const Node& n) {
  return make_stored_copy(conversion_of(context), input_info(g, n, 0), output_info(g, n, 0));
}

using CpuOperands = HostOperands<float, kernels::cpu::Run>;
template <typename F>
std::unique_ptr<Kernel> with_operands(CpuContext& context, const Graph&, const Node& n,
                                      const TensorInfo& t, F f) {
  require_f32(n, t);
  return f(CpuOperands(context.team));
}

template <typename K>
std::unique_ptr<Kernel> make(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return std::make_unique<K>(context, g, n);
}

std::span<const CpuEntry> cpu_elementwise_kernels();
std::span<const CpuEntry> cpu_activation_kernels();
std::span<const CpuEntry> cpu_box_kernels();
std::span<const CpuEntry> cpu_dense_kernels();
std::span<const CpuEntry> cpu_image_kernels();
std::span<const CpuEntry> cpu_sequence_kernels();
std::span<const CpuEntry> cpu_text_kernels();
std::span<const CpuEntry> cpu_training_kernels();
std::span<const CpuEntry> cpu_update_kernels();
std::span<const CpuEntry> cpu_muon_kernels();

}  // namespace trainyard
