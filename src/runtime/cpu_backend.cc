#include "kernels/cpu/peak_flops.h"
#include "src/base/check.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/host_memory.h"
#include "src/runtime/parts_kernel.h"

namespace trainyard {
namespace {

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(int threads) : context_{threads} {
    table_.add(cpu_elementwise_kernels());
    table_.add(cpu_activation_kernels());
    table_.add(cpu_box_kernels());
    table_.add(cpu_dense_kernels());
    table_.add(cpu_image_kernels());
    table_.add(cpu_sequence_kernels());
    table_.add(cpu_text_kernels());
    table_.add(cpu_training_kernels());
    table_.add(cpu_update_kernels());
  }
  std::string_view name() const override { return "cpu"; }
  bool has_kernel(std::string_view op_type) const override {
    return is_exchange(op_type) || table_.contains(op_type) || has_parts(op_type);
  }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    if (auto exchange = prepare_exchange(graph, node)) return exchange;
    if (!table_.contains(node.op->type()) && has_parts(node.op->type())) {
      return std::make_unique<PartsKernel>(*this, graph, node);
    }
    return with_storage(table_.make(context_, graph, node), conversion_of(context_), graph, node);
  }
  DevicePeak peak() const override {
    const int threads = context_.team.size();
    DevicePeak peak;
    peak.f32_flops = kernels::cpu::measure_peak_gflops(threads) * 1e9;
    peak.source =
        "measured with " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    return peak;
  }

 private:
  CpuContext context_;
  KernelTable<CpuContext> table_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  TRAINYARD_CHECK(threads >= 1,
                  "the cpu backend needs at least 1 thread, not " + std::to_string(threads));
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace trainyard
