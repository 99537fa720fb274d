#include "kernels/cpu/peak_flops.h"
#include "src/base/check.h"
#include "src/runtime/common/image_kernels.h"
#include "src/runtime/common/loss_kernels.h"
#include "src/runtime/common/sequence_kernels.h"
#include "src/runtime/common/text_kernels.h"
#include "src/runtime/cpu/kernels.h"
#include "src/runtime/host/host_table_backend.h"

namespace trainyard {
namespace {

class CpuBackend final : public HostTableBackend<CpuContext> {
 public:
  explicit CpuBackend(int threads) : HostTableBackend(threads) {
    table_.add(cpu_elementwise_kernels());
    table_.add(cpu_activation_kernels());
    table_.add(cpu_box_kernels());
    table_.add(cpu_dense_kernels());
    table_.add(cpu_image_kernels());
    table_.add(host_image_kernels<CpuContext>());
    table_.add(cpu_sequence_kernels());
    table_.add(host_sequence_kernels<CpuContext>());
    table_.add(cpu_text_kernels());
    table_.add(host_text_kernels<CpuContext>());
    table_.add(cpu_training_kernels());
    table_.add(host_training_kernels<CpuContext>());
    table_.add(cpu_update_kernels());
    table_.add(cpu_muon_kernels());
  }
  std::string_view name() const override { return "cpu"; }
  DevicePeak peak() const override {
    const int threads = context_.team.size();
    DevicePeak peak;
    peak.f32_flops = kernels::cpu::measure_peak_gflops(threads) * 1e9;
    peak.source =
        "measured with " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    return peak;
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  TRAINYARD_CHECK(threads >= 1,
                  "the cpu backend needs at least 1 thread, not " + std::to_string(threads));
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace trainyard
