// src/graph/graph.h: a typed, static-shape SSA graph of one training step.
//
// A tensor is defined once: by a node, or as a graph input, parameter or state. Nodes are in
// topological order, since a node is appended after the producers of its inputs. Backward and
// update nodes are ordinary nodes that autodiff and the optimizer append, so every later stage sees
// one list.
//
// In-place effects are limited and declared: an op may name inputs that it updates
// (Op::mutated_inputs). Those must be parameters or state, and later nodes may read them only to
// update them again. A cache (Role::kCache) is the exception: nodes after the update read it with
// the new rows. Passes and schedule keep the order of forward nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/graph/attributes.h"
#include "src/tensor/shape.h"

namespace trainyard {

class Op;

using TensorId = int32_t;
using NodeId = int32_t;
constexpr TensorId kNoTensor = -1;  // in place of an optional input or output that is left out
constexpr NodeId kNoNode = -1;

enum class Role : uint8_t {
  kInput,           // written before each run: a batch, the step number, the learning rate
  kParameter,       // trained; saved
  kState,           // not trained, but saved: for example running statistics
  kOptimizerState,  // for example momentum; saved with the weights, but not part of a model
  kAccumulator,     // a sum over the micro-batches of one step; kept between runs, not saved
  kCopy,            // a parameter in 16 bits, which its update writes too; kept, not saved
  kCache,           // keys or values of earlier tokens; kept between runs, not saved
  kActivation,      // also the gradient of an activation
  kGradient,  // the gradient of a parameter, or a summand of such a gradient; always row-major
  kRemoved,   // removed by a pass: only the ID remains, and is not reused
};
std::string_view name_of(Role role);

enum class Phase : uint8_t { kForward, kBackward, kUpdate };
std::string_view name_of(Phase phase);

/// How a parameter or state tensor gets its first value. Random values come from Philox, keyed by
/// (seed, tensor name, element index in row-major order), so they depend neither on other tensors
/// nor on the number of threads.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal } kind = Kind::kConstant;
  double a = 0;  // the constant, the lower bound or the mean
  double b = 0;  // the upper bound or the standard deviation
};

/// How a tensor's values are distributed over the ranks (devices) of a job. On one device every
/// tensor is kOwn. Op::spread says which spreads an op accepts; only exchanges between the ranks
/// convert one spread into another.
enum class Spread : uint8_t {
  kOwn,       // values for this rank's rows of the batch, or the same values on all ranks
  kGathered,  // values for all ranks' rows, in the order of the ranks; the same on all ranks
  kClasses,   // the values of this rank's classes; other ranks have the other classes
  kUnits,     // the values of this rank's hidden units; other ranks have the other units
  kElements,  // this rank's shard of the elements (TensorInfo::shard_of)
  kSummand,   // for all ranks' rows; the tensor's value is the sum over the ranks
};
std::string_view name_of(Spread spread);
/// Returns whether a tensor of this spread is one rank's part of a larger tensor, stored on no
/// other rank.
constexpr bool is_part(Spread spread) {
  return spread == Spread::kClasses || spread == Spread::kUnits || spread == Spread::kElements;
}

struct TensorInfo {
  std::string name;  // unique in the graph
  TensorType type;
  Role role = Role::kActivation;
  Layout layout = Layout::kRowMajor;
  NodeId producer = kNoNode;
  Initializer initializer;  // parameters and state
  Storage storage = Storage::kAsTyped;
  // For a rank's shard of a tensor: the shape of the whole tensor, which is what files contain. All
  // shards have the same size and follow each other in row-major order; the last shards may be
  // padded beyond the tensor's end.
  std::optional<Shape> shard_of = {};
  Spread spread = Spread::kOwn;
  int64_t shard_axis = 0;  // 1: the shard of a matrix is a range of its columns, with all rows
  // The offset of a parameter that is read in place in the mapped file of initial weights.
  static constexpr int64_t kNotMapped = -1;
  int64_t mapped_at = kNotMapped;

  TensorType whole_type() const { return {shard_of.value_or(type.shape), type.dtype}; }
  /// Gives the tensor the sharding of `other`, which has the same shape.
  void shard_like(const TensorInfo& other) {
    shard_of = other.shard_of;
    spread = other.spread;
    shard_axis = other.shard_axis;
  }
  bool is_bf16() const { return storage == Storage::kBf16; }
  bool is_f16() const { return storage == Storage::kF16; }
  bool is_mapped() const { return mapped_at != kNotMapped; }
  bool is_half() const { return storage != Storage::kAsTyped; }  // stored in two bytes per element
  int64_t stored_bytes() const { return is_half() ? type.bytes() / 2 : type.bytes(); }
};

struct Node {
  std::string name;  // unique; a backward node is named "layer/grad", an update "param/update"
  const Op* op = nullptr;
  Attributes attributes;
  std::vector<TensorId> inputs;   // kNoTensor for an optional input that is left out
  std::vector<TensorId> outputs;  // kNoTensor for an optional output that is left out
  Phase phase = Phase::kForward;
};

class Graph {
 public:
  /// Adds a tensor without a producer (input, parameter, state). A duplicate name is a fault.
  TensorId add_tensor(TensorInfo info);

  /// Appends a node: infers the types of the outputs with op.infer and creates them under
  /// `output_names`. There is one name per output; "" leaves an optional output out. Returns
  /// op.infer's error with the node's name in front of its message.
  Result<NodeId> add_node(std::string name, const Op& op, Attributes attributes,
                          std::vector<TensorId> inputs, std::vector<std::string> output_names,
                          Phase phase = Phase::kForward);

  /// Replaces all nodes, for passes that merge, clone, insert or drop some. `nodes` must be in
  /// topological order. Their outputs are computed tensors of this graph, each the output of one
  /// node; their types stay. A tensor that no node computes any longer is removed (Role::kRemoved)
  /// and must not be a marked output.
  void rewrite(std::vector<Node> nodes);

  /// Turns a tensor that has no producer, and is read by no node yet, into a rank's shard of
  /// itself.
  void make_shard(TensorId id, Shape shard);
  /// Removes a tensor without a producer (Role::kRemoved). No node may read it, which verify()
  /// checks.
  void remove(TensorId id);

  const TensorInfo& tensor(TensorId id) const { return tensors_.at(static_cast<size_t>(id)); }
  const Node& node(NodeId id) const { return nodes_.at(static_cast<size_t>(id)); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::optional<TensorId> find_tensor(std::string_view name) const;

  void set_layout(TensorId id, Layout layout) {
    tensors_.at(static_cast<size_t>(id)).layout = layout;
  }
  void set_storage(TensorId id, Storage storage) {
    tensors_.at(static_cast<size_t>(id)).storage = storage;
  }
  /// Makes a parameter one that is read from a mapped file, where it begins at `offset`.
  void set_mapped(TensorId id, int64_t offset) {
    tensors_.at(static_cast<size_t>(id)).mapped_at = offset;
  }
  /// Changes a tensor's role: add_node makes outputs activations, and differentiate() marks the
  /// gradients among them.
  void set_role(TensorId id, Role role) { tensors_.at(static_cast<size_t>(id)).role = role; }

  /// Marks a tensor that is read after a run, such as the loss or the logits. Its memory is not
  /// reused within the run.
  void mark_output(TensorId id);
  const std::vector<TensorId>& outputs() const { return outputs_; }

  /// Faults if the graph breaks an invariant: order, single definition, inferred types, mutation
  /// rules, roles. Runs after each pass in debug builds, and in tests.
  void verify() const;

  /// Returns the graph as text, one tensor or node per line. The text is stable, so golden files
  /// can contain it.
  std::string dump() const;

 private:
  TensorId define(TensorInfo info);
  void erase(TensorInfo& tensor);

  std::vector<TensorInfo> tensors_;
  std::vector<Node> nodes_;
  std::vector<TensorId> outputs_;
  std::map<std::string, TensorId, std::less<>> tensor_by_name_;
  std::set<std::string, std::less<>> node_names_;
};

}  // namespace trainyard
