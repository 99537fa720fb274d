// src/graph/op.h: what the graph needs to know about an operation. The ops live in src/ops/, one
// header/source pair each; kernels are found by (backend, type) in src/runtime/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace trainyard {

/// What `infer` may look at.
class InferContext {
 public:
  InferContext(const Graph& graph, const Attributes& attributes,
               const std::vector<TensorId>& inputs)
      : graph_(graph), attributes_(attributes), inputs_(inputs) {}
  int64_t input_count() const { return static_cast<int64_t>(inputs_.size()); }
  bool has_input(int64_t i) const;
  const TensorType& input(int64_t i) const;  // a fault if it is left out
  const Attributes& attributes() const { return attributes_; }

 private:
  const Graph& graph_;
  const Attributes& attributes_;
  const std::vector<TensorId>& inputs_;
};

/// What `differentiate` works with: the forward node, the gradients that reach its outputs, and a
/// way to append backward nodes and hand gradients to its inputs (several readers of a tensor are
/// summed).
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  virtual const Graph& graph() const = 0;
  virtual const Node& node() const = 0;
  TensorId input(int64_t i) const { return node().inputs.at(static_cast<size_t>(i)); }
  TensorId output(int64_t i) const { return node().outputs.at(static_cast<size_t>(i)); }
  /// Gradient of output i, or kNoTensor if nothing that matters reads it.
  virtual TensorId grad_output(int64_t i) const = 0;
  /// True if input i leads to a parameter: others need no gradient, and asking for one is waste.
  virtual bool needs_grad(int64_t i) const = 0;
  /// Appends a backward node named "<node>/<suffix>" and returns its outputs. `wanted[k]` = false
  /// leaves output k out (kNoTensor).
  virtual std::vector<TensorId> add(std::string_view suffix, const Op& op, Attributes attributes,
                                    std::vector<TensorId> inputs, std::vector<bool> wanted) = 0;
  virtual void set_grad(int64_t i, TensorId gradient) = 0;
};

/// FLOPs (one multiply-add = 2) and the bytes that must move at least (each input read once, each
/// output written once).
struct Cost {
  int64_t flops = 0;
  int64_t bytes = 0;
};

/// Which physical orders of rank-4 activations an op's kernels take.
enum class LayoutRule : uint8_t {
  kRowMajorOnly,    // inputs and outputs row-major (also every op on rank 2)
  kFollow,          // elementwise: output as input, all rank-4 activations alike
  kChannelsLastToo  // conv, pool, normalization: prefers channels-last, takes either, all alike
};

/// What a lower precision (src/passes/assign_precision.h) may do to an op's tensors.
struct PrecisionRule {
  /// Outputs that stay F32: losses, and statistics that backward divides by.
  std::vector<int64_t> f32_outputs = {};
  /// Inputs whose producer should leave them F32: what a loss is taken of.
  std::vector<int64_t> f32_inputs = {};
  /// Inputs that a product multiplies: read from a copy in bf16 where they are not stored so.
  std::vector<int64_t> factors = {};
  /// Input 0 and output 0 hold the same numbers, in the same storage where both are computed.
  bool moves = false;
};

class Op {
 public:
  virtual ~Op() = default;
  /// The ONNX name ("Conv"); gradients and updates, which ONNX lacks, are "ConvGrad", "SgdUpdate".
  virtual std::string_view type() const = 0;
  /// Types of all outputs, in order, optional ones too. All refusals happen here; a message starts
  /// with the attribute or input it is about, add_node puts the node's name before it.
  virtual Result<std::vector<TensorType>> infer(const InferContext& c) const = 0;
  /// Appends the backward nodes. The default is a fault: gradients and updates are not
  /// differentiated.
  virtual void differentiate(GradientContext& c) const;
  virtual Cost cost(const Graph& graph, const Node& node) const;  // default: 0 FLOPs, all bytes
  /// Indices of inputs that a run updates in place (running statistics, parameters).
  virtual std::vector<int64_t> mutated_inputs(const Node&) const { return {}; }
  /// Pairs (output, input): the kernel may be given the same memory for both. The plan uses it
  /// where the input has no later reader and both have one size and one layout.
  virtual std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const { return {}; }
  /// Other work goes on behind it (an exchange between devices): an update node of it never waits
  /// for company.
  virtual bool starts_other_work() const { return false; }
  /// The spreads of all outputs, in order, by those of the inputs (kOwn where one is left out);
  /// none: the op does not take these. By default all are kOwn.
  virtual std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                                    size_t outputs) const;
  virtual LayoutRule layout_rule() const { return LayoutRule::kRowMajorOnly; }
  virtual PrecisionRule precision_rule() const { return {}; }
};

/// Spreads of a node's outputs. The error names what the node does not take.
Result<std::vector<Spread>> spread_outputs(const Graph& graph, const Op& op,
                                           const std::vector<TensorId>& inputs, size_t outputs);

/// The registry: an explicit list in src/ops/registry.cc.
const Op* find_op(std::string_view type);
const Op& get_op(std::string_view type);  // a fault if unknown
std::vector<const Op*> all_ops();

/// Of a node that updates a parameter, the input that numbers the rows which it reads and updates,
/// if it does not update all: the last one, and no other one is I32 (src/ops/shards.h).
std::optional<size_t> updated_rows(const Graph& graph, const Node& node);

}  // namespace trainyard
