#include "src/runtime/common/image_kernels.h"
#include "src/runtime/common/loss_kernels.h"
#include "src/runtime/common/sequence_kernels.h"
#include "src/runtime/common/text_kernels.h"
#include "src/runtime/host/host_table_backend.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {
namespace {

class ReferenceBackend final : public HostTableBackend<ReferenceContext> {
 public:
  ReferenceBackend() {
    table_.add(reference_elementwise_kernels());
    table_.add(reference_activation_kernels());
    table_.add(reference_box_kernels());
    table_.add(reference_dense_kernels());
    table_.add(reference_image_kernels());
    table_.add(host_image_kernels<ReferenceContext>());
    table_.add(reference_sequence_kernels());
    table_.add(host_sequence_kernels<ReferenceContext>());
    table_.add(reference_text_kernels());
    table_.add(host_text_kernels<ReferenceContext>());
    table_.add(reference_training_kernels());
    table_.add(host_training_kernels<ReferenceContext>());
    table_.add(reference_update_kernels());
    table_.add(reference_muon_kernels());
  }
  std::string_view name() const override { return "reference"; }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace trainyard
