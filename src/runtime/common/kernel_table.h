// src/runtime/common/kernel_table.h: maps op types to a backend's kernels.
//
// Each family file of a backend (reference/dense.cc, cpu/images.cc, ...) has one table of entries
// and one function that returns it; the backend's own file lists these functions.
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

/// `Context` is the data shared by a backend's kernels: threads, a stream.
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

/// A kernel from a function object with its prepared dimensions: run() calls f(args).
template <bool kAcceptsStored, typename F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F function, int64_t bytes) : f_(std::move(function)), bytes_(bytes) {}
  int64_t workspace_bytes() const override { return bytes_; }
  bool accepts_stored_types() const override { return kAcceptsStored; }
  void run(const KernelArgs& args) override { f_(args); }

 private:
  F f_;
  int64_t bytes_;
};
template <typename F>
std::unique_ptr<Kernel> make_kernel(F f, int64_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<false, F>>(std::move(f), workspace_bytes);
}
/// Like make_kernel(), for a function that was prepared for the stored type of each tensor.
template <typename F>
std::unique_ptr<Kernel> make_stored_kernel(F f, int64_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<true, F>>(std::move(f), workspace_bytes);
}

/// A kernel whose output element i depends only on element i of each input, so that it can run on
/// any range of elements.
class PointwiseKernel : public Kernel {
 public:
  explicit PointwiseKernel(int64_t count) : count_(count) {}
  int64_t count() const { return count_; }
  /// Computes `count` elements, starting at the pointers in `args`. Ranges too short for several
  /// threads may run on any thread.
  virtual void run_span(const KernelArgs& args, int64_t count) const = 0;
  void run(const KernelArgs& args) final { run_span(args, count_); }

 private:
  int64_t count_;
};

/// Returns a PointwiseKernel whose run_span() calls f(args, count).
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

/// Returns the description of input or output `i` of a node.
inline const TensorInfo& input_info(const Graph& graph, const Node& node, size_t i) {
  return graph.tensor(node.inputs.at(i));
}
inline const TensorInfo& output_info(const Graph& graph, const Node& node, size_t i) {
  return graph.tensor(node.outputs.at(i));
}
/// Returns whether any tensor of the node is stored in 16 bits.
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
