// src/runtime/kernel_table.h: how a backend finds the kernel of an op.
//
// Each family file of a backend (reference_dense.cc, cpu_conv.cc, ...) has one table of entries and
// one function that returns it; the backend's own file lists these functions.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/check.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// `Context` is what a backend's kernels share: threads, a oneDNN engine, a stream.
template <typename Context>
struct KernelEntry {
  std::string_view op_type;
  std::unique_ptr<Kernel> (*make)(Context& context, const Graph& graph, const Node& node);
};

template <typename Context>
class KernelTable {
 public:
  void add(std::span<const KernelEntry<Context>> entries) {
    for (const auto& e : entries) {
      const bool is_new = by_type_.emplace(e.op_type, e.make).second;
      TRAINYARD_CHECK(is_new, "two kernels for op " + std::string(e.op_type));
    }
  }
  bool contains(std::string_view op_type) const { return by_type_.contains(op_type); }
  std::unique_ptr<Kernel> make(Context& context, const Graph& graph, const Node& node) const {
    const auto it = by_type_.find(node.op->type());
    TRAINYARD_CHECK(it != by_type_.end(),
                    node.name + ": no kernel for op " + std::string(node.op->type()));
    return it->second(context, graph, node);
  }

 private:
  std::map<std::string_view, std::unique_ptr<Kernel> (*)(Context&, const Graph&, const Node&)>
      by_type_;
};

/// A kernel from a function object that holds its prepared dimensions: run() calls f(args).
template <typename F>
std::unique_ptr<Kernel> make_kernel(F f, int64_t workspace_bytes = 0) {
  class FunctionKernel final : public Kernel {
   public:
    FunctionKernel(F function, int64_t bytes) : f_(std::move(function)), bytes_(bytes) {}
    int64_t workspace_bytes() const override { return bytes_; }
    void run(const KernelArgs& args) override { f_(args); }

   private:
    F f_;
    int64_t bytes_;
  };
  return std::make_unique<FunctionKernel>(std::move(f), workspace_bytes);
}

/// Calls f(T()) with T = float or double.
template <typename F>
auto with_float_type(DType dtype, F f) {
  TRAINYARD_CHECK(is_float(dtype), "F32 or F64 is needed, not " + std::string(name_of(dtype)));
  return dtype == DType::kF64 ? f(double()) : f(float());
}

/// The tensor of an input or output of a node.
inline const TensorInfo& input_info(const Graph& graph, const Node& node, size_t i) {
  return graph.tensor(node.inputs.at(i));
}
inline const TensorInfo& output_info(const Graph& graph, const Node& node, size_t i) {
  return graph.tensor(node.outputs.at(i));
}
inline bool has_input(const Node& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != kNoTensor;
}
inline bool has_output(const Node& node, size_t i) {
  return i < node.outputs.size() && node.outputs[i] != kNoTensor;
}

}  // namespace trainyard
