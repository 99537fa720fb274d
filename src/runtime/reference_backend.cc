#include "src/runtime/half_kernel.h"
#include "src/runtime/host_memory.h"
#include "src/runtime/parts_kernel.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

class ReferenceBackend final : public HostBackend {
 public:
  ReferenceBackend() {
    table_.add(reference_elementwise_kernels());
    table_.add(reference_activation_kernels());
    table_.add(reference_box_kernels());
    table_.add(reference_dense_kernels());
    table_.add(reference_image_kernels());
    table_.add(reference_sequence_kernels());
    table_.add(reference_text_kernels());
    table_.add(reference_training_kernels());
    table_.add(reference_update_kernels());
  }
  std::string_view name() const override { return "reference"; }
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

 private:
  ReferenceContext context_;
  KernelTable<ReferenceContext> table_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace trainyard
