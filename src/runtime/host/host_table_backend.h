// src/runtime/host/host_table_backend.h: a host backend whose kernels are listed in a table.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "src/runtime/common/half_kernel.h"
#include "src/runtime/common/head_loss_kernel.h"
#include "src/runtime/common/kernel_table.h"
#include "src/runtime/common/parts_kernel.h"
#include "src/runtime/host/host_memory.h"

namespace trainyard {

/// A fused op without a kernel runs as its parts. Tensors stored in 16 bits are converted before
/// and after kernels that accept only F32.
template <typename Context>
class HostTableBackend : public HostBackend {
 public:
  bool has_kernel(std::string_view op_type) const override {
    return is_exchange(op_type) || table_.contains(op_type) || has_parts(op_type) ||
           op_type == head_loss_op()->type();
  }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    if (auto exchange = prepare_exchange(graph, node)) return exchange;
    const bool trains_head =
        node.op == head_loss_op() && (has_output(node, 2) || has_output(node, 3));
    if (trains_head || (node.op == head_loss_op() && !table_.contains(node.op->type()))) {
      return std::make_unique<HeadLossKernel>(*this, graph, node);
    }
    if (!table_.contains(node.op->type()) && has_parts(node.op->type())) {
      return std::make_unique<PartsKernel>(*this, graph, node);
    }
    return with_storage(table_.make(context_, graph, node), conversion_of(context_), graph, node);
  }

 protected:
  template <typename... Args>
  explicit HostTableBackend(Args&&... of_context) : context_{std::forward<Args>(of_context)...} {}

  Context context_;
  KernelTable<Context> table_;
};

}  // namespace trainyard
