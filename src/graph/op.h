// src/graph/op.h: the interface between the graph and an operation. src/ops/ has a header/source
// pair for each op; src/runtime/ finds kernels by (backend, type).
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

/// The inputs and attributes that `infer` may use.
class InferContext {
 public:
  InferContext(const Graph& graph, const Attributes& attributes,
               const std::vector<TensorId>& inputs)
      : graph_(graph), attributes_(attributes), inputs_(inputs) {}
  int64_t input_count() const { return static_cast<int64_t>(inputs_.size()); }
  bool has_input(int64_t i) const;
  const TensorType& input(int64_t i) const;  // a fault if the input is left out
  const Attributes& attributes() const { return attributes_; }

 private:
  const Graph& graph_;
  const Attributes& attributes_;
  const std::vector<TensorId>& inputs_;
};

/// Passed to `differentiate`: the forward node, the gradients of its outputs, and functions that
/// append backward nodes and set the gradients of its inputs. The gradients from several readers of
/// a tensor are summed.
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  virtual const Graph& graph() const = 0;
  virtual const Node& node() const = 0;
  TensorId input(int64_t i) const { return node().inputs.at(static_cast<size_t>(i)); }
  TensorId output(int64_t i) const { return node().outputs.at(static_cast<size_t>(i)); }
  /// Returns the gradient of output i, or kNoTensor if the loss does not depend on it.
  virtual TensorId grad_output(int64_t i) const = 0;
  /// Returns true if input i depends on a parameter that is trained. Other inputs need no gradient,
  /// and computing one is a waste.
  virtual bool needs_grad(int64_t i) const = 0;
  /// Appends a backward node named "<node>/<suffix>" and returns its outputs. `wanted[k]` = false
  /// leaves output k out (kNoTensor).
  virtual std::vector<TensorId> add(std::string_view suffix, const Op& op, Attributes attributes,
                                    std::vector<TensorId> inputs, std::vector<bool> wanted) = 0;
  virtual void set_grad(int64_t i, TensorId gradient) = 0;
};

/// FLOPs (a multiply-add counts 2) and the least possible memory traffic in bytes: each input is
/// read once, each output written once.
struct Cost {
  int64_t flops = 0;
  int64_t bytes = 0;
};

/// The physical orders of rank-4 activations that an op's kernels accept.
enum class LayoutRule : uint8_t {
  kRowMajorOnly,    // inputs and outputs are row-major; also for ops on tensors of other ranks
  kFollow,          // elementwise: the output has the layout of the inputs, which must agree
  kChannelsLastToo  // convolution, pooling, normalization: as kFollow; channels-last is faster
};

/// How a lower precision (src/passes/assign_precision.h) may change an op's tensors.
struct PrecisionRule {
  /// Outputs that stay F32: losses, and statistics that the backward pass divides by.
  std::vector<int64_t> f32_outputs = {};
  /// Inputs that their producer should leave in F32, such as the scores that a loss reads.
  std::vector<int64_t> f32_inputs = {};
  /// Inputs that a product (matrix product, convolution, attention) multiplies. If such an input is
  /// not stored in 16 bits, the product reads a 16-bit copy.
  std::vector<int64_t> factors = {};
  /// The op only moves elements: output 0 has those of input 0, and the same storage if both are
  /// computed.
  bool moves = false;
};

class Op {
 public:
  virtual ~Op() = default;
  /// Returns the ONNX name ("Conv"). Gradients and updates, which ONNX does not have, are named
  /// "ConvGrad", "SgdUpdate".
  virtual std::string_view type() const = 0;
  /// Returns the types of all outputs, in order, including optional ones. All invalid nodes are
  /// refused here. A message starts with the attribute or input that is at fault; add_node prefixes
  /// the node's name.
  virtual Result<std::vector<TensorType>> infer(const InferContext& c) const = 0;
  /// Appends the backward nodes. The default is a fault, because gradient and update ops are not
  /// differentiated.
  virtual void differentiate(GradientContext& c) const;
  virtual Cost cost(const Graph& graph, const Node& node) const;  // default: 0 FLOPs, all bytes
  /// Returns the indices of inputs that a run updates in place (running statistics, parameters).
  virtual std::vector<int64_t> mutated_inputs(const Node&) const { return {}; }
  /// Pairs (output, input) for which the kernel accepts the same memory. The plan shares memory if
  /// no later node reads the input and both tensors have the same size and layout.
  virtual std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const { return {}; }
  /// Returns whether the node starts work that runs concurrently with later nodes, such as an
  /// exchange between devices. The schedule never delays such an update node to group it with
  /// others.
  virtual bool starts_other_work() const { return false; }
  /// Returns the spreads of all outputs, in order, given those of the inputs (kOwn for an input
  /// that is left out); nothing if the op does not accept these inputs. By default all must be
  /// kOwn.
  virtual std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                                    size_t outputs) const;
  virtual LayoutRule layout_rule() const { return LayoutRule::kRowMajorOnly; }
  virtual PrecisionRule precision_rule() const { return {}; }
};

/// Returns the spreads of a node's outputs. The error names the inputs that the op does not accept.
Result<std::vector<Spread>> spread_outputs(const Graph& graph, const Op& op,
                                           const std::vector<TensorId>& inputs, size_t outputs);

/// Returns the registry: an explicit list in src/ops/registry.cc.
const Op* find_op(std::string_view type);
const Op& get_op(std::string_view type);  // a fault if the type is unknown
std::vector<const Op*> all_ops();

/// Returns, for a node that updates only some rows of a parameter, the index of the input that
/// lists these rows. It is the last input, and no other input is I32 (src/ops/shards.h). Nothing if
/// the node updates all rows.
std::optional<size_t> updated_rows(const Graph& graph, const Node& node);
/// Returns, for a node that updates a parameter (its input 0), the index of the input that is the
/// parameter's copy in 16 bits (Role::kCopy), which the node writes too. It is the last input.
/// Nothing if the node writes no copy.
std::optional<size_t> written_copy(const Graph& graph, const Node& node);

}  // namespace trainyard
