// src/graph/graph.h: a typed, static-shape SSA graph of one training step.
//
// Tensors are defined once, by a node or as a graph input, parameter or state. Nodes stand in
// topological order: a node is appended after the producers of its inputs. Backward and update
// nodes are ordinary nodes that autodiff and the optimizer append, so every later stage sees one
// list.
//
// In-place effects are limited and declared: an op may name inputs that it updates
// (Op::mutated_inputs); those must be parameters or state, and no later node may read them but to
// update them again.
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
constexpr TensorId kNoTensor = -1;  // an optional input or output that is left out
constexpr NodeId kNoNode = -1;

enum class Role : uint8_t {
  kInput,           // written before each run: a batch, the step number, the learning rate
  kParameter,       // trained; saved
  kState,           // not trained, but saved: running statistics
  kOptimizerState,  // momentum and the like; saved beside the weights, not part of a model
  kAccumulator,     // a sum over the micro-batches of one step; kept between runs, not saved
  kActivation,      // also the gradient of an activation
  kGradient,        // of a parameter, or a summand of one; always row-major
  kRemoved,         // by a pass: its id stays taken, nothing else is left of it
};
std::string_view name_of(Role role);

enum class Phase : uint8_t { kForward, kBackward, kUpdate };
std::string_view name_of(Phase phase);

/// How a parameter or state tensor gets its first value. Drawn by Philox, keyed by (seed, tensor
/// name, element index) in row-major order, so that no other tensor and no thread changes it.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal } kind = Kind::kConstant;
  double a = 0;  // constant value; lower bound; mean
  double b = 0;  // upper bound; standard deviation
};

/// What a tensor's values are of, in a job on several devices ("ranks"). On one device all are
/// kOwn. An op takes what it says it does (Op::spread), and only an exchange makes one of another.
enum class Spread : uint8_t {
  kOwn,       // of this rank's rows of the batch, or alike on all ranks
  kGathered,  // of all ranks' rows, in the order of the ranks: alike on all
  kClasses,   // of this rank's classes; the other ranks hold the others
  kUnits,     // of this rank's hidden units, likewise
  kElements,  // of this rank's elements (TensorInfo::shard_of); the other ranks hold the others
  kSummand,   // of all ranks' rows; the sum over the ranks is what is meant
};
std::string_view name_of(Spread spread);
/// What is kept so is a part of a whole: complete on its rank, and on no other.
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
  // Of a tensor of which each rank holds a shard: the whole one's shape. Files hold that. The
  // shards are of equal size, in row-major order, and the last ones may reach beyond its end.
  std::optional<Shape> shard_of = {};
  Spread spread = Spread::kOwn;
  int64_t shard_axis = 0;  // 1: of a matrix, a shard is so many columns, of all of its rows

  TensorType whole_type() const { return {shard_of.value_or(type.shape), type.dtype}; }
  /// Each rank holds as much of it as of `other`, which has the same shape.
  void hold_as(const TensorInfo& other) {
    shard_of = other.shard_of;
    spread = other.spread;
    shard_axis = other.shard_axis;
  }
  bool is_bf16() const { return storage == Storage::kBf16; }
  bool is_f16() const { return storage == Storage::kF16; }
  bool is_half() const { return storage != Storage::kAsTyped; }  // in two bytes
  int64_t stored_bytes() const { return is_half() ? type.bytes() / 2 : type.bytes(); }
};

struct Node {
  std::string name;  // unique; backward nodes are "layer/grad", updates "param/update"
  const Op* op = nullptr;
  Attributes attributes;
  std::vector<TensorId> inputs;   // kNoTensor where an optional input is left out
  std::vector<TensorId> outputs;  // kNoTensor where an optional output is left out
  Phase phase = Phase::kForward;
};

class Graph {
 public:
  /// Adds a tensor without a producer (input, parameter, state). A name used twice is a fault.
  TensorId add_tensor(TensorInfo info);

  /// Appends a node: infers the outputs' types with op.infer and creates them under `output_names`
  /// (one per output, "" leaves an optional output out). Refuses what infer refuses; the message
  /// begins with the node's name.
  Result<NodeId> add_node(std::string name, const Op& op, Attributes attributes,
                          std::vector<TensorId> inputs, std::vector<std::string> output_names,
                          Phase phase = Phase::kForward);

  /// Replaces all nodes: for passes that merge, clone, insert or drop some. `nodes` are in
  /// topological order; their outputs are tensors of this graph that were computed before, each
  /// once. What no node computes any more is removed (Role::kRemoved), which no marked output may
  /// be. Types stay.
  void rewrite(std::vector<Node> nodes);

  /// A tensor without a producer, which no node reads yet, becomes a rank's shard of what it was.
  void make_shard(TensorId id, Shape shard);
  /// Removes a tensor without a producer (Role::kRemoved); verify() finds a node that reads it.
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
  /// Nodes define activations; differentiate() marks the gradients of parameters.
  void set_role(TensorId id, Role role) { tensors_.at(static_cast<size_t>(id)).role = role; }

  /// Names of tensors to read after a run (loss, logits). They outlive every node.
  void mark_output(TensorId id);
  const std::vector<TensorId>& outputs() const { return outputs_; }

  /// Faults if the graph breaks an invariant: order, single definition, types as inferred, mutation
  /// rules, roles. Runs after each pass in debug builds and in tests.
  void verify() const;

  /// Text of the graph, one tensor or node per line, stable across runs (golden files hold it).
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
