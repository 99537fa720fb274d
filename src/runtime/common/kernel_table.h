// src/runtime/common/kernel_table.h: how a backend finds the kernel of an op.
//
// Each family file of a backend (reference_dense.cc, cpu_conv.cc, ...) has one table of entries and
// one function that returns it; the backend's own file lists these functions.
#pragma once

#include <algorithm>
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
template <bool kTakesStored, typename F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F function, int64_t bytes) : f_(std::move(function)), bytes_(bytes) {}
  int64_t workspace_bytes() const override { return bytes_; }
  bool takes_stored() const override { return kTakesStored; }
  void run(const KernelArgs& args) override { f_(args); }

 private:
  F f_;
  int64_t bytes_;
};
template <typename F>
std::unique_ptr<Kernel> make_kernel(F f, int64_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<false, F>>(std::move(f), workspace_bytes);
}
/// As make_kernel, of a function that was prepared for how each tensor is stored.
template <typename F>
std::unique_ptr<Kernel> make_stored_kernel(F f, int64_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<true, F>>(std::move(f), workspace_bytes);
}

/// A kernel whose element i is a function of the elements i of its inputs alone, so that it can run
/// on any span of them.
class PointwiseKernel : public Kernel {
 public:
  explicit PointwiseKernel(int64_t count) : count_(count) {}
  int64_t count() const { return count_; }
  /// `count` elements from where the pointers of `args` stand. Spans below a thread's worth may run
  /// on any thread.
  virtual void run_span(const KernelArgs& args, int64_t count) const = 0;
  void run(const KernelArgs& args) final { run_span(args, count_); }

 private:
  int64_t count_;
};

/// run() calls f(args, count).
template <typename F>
std::unique_ptr<Kernel> make_pointwise_kernel(int64_t count, F f) {
  class FunctionKernel final : public PointwiseKernel {
   public:
    FunctionKernel(int64_t elements, F function)
        : PointwiseKernel(elements), f_(std::move(function)) {}
    void run_span(const KernelArgs& args, int64_t elements) const override { f_(args, elements); }

   private:
    F f_;
  };
  return std::make_unique<FunctionKernel>(count, std::move(f));
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
/// True if a tensor of the node is stored in 16 bits.
inline bool touches_half(const Graph& graph, const Node& node) {
  const auto is_half = [&](TensorId id) { return id != kNoTensor && graph.tensor(id).is_half(); };
  return std::ranges::any_of(node.inputs, is_half) || std::ranges::any_of(node.outputs, is_half);
}
inline bool has_input(const Node& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != kNoTensor;
}
inline bool has_output(const Node& node, size_t i) {
  return i < node.outputs.size() && node.outputs[i] != kNoTensor;
}

}  // namespace trainyard
