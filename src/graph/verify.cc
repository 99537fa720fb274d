// Checks the graph's invariants from scratch, without relying on the checks of add_node.
#include <algorithm>
#include <set>

#include "src/base/check.h"
#include "src/graph/graph.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

bool is_persistent(Role role) {
  return role == Role::kParameter || role == Role::kState || role == Role::kOptimizerState ||
         role == Role::kAccumulator || role == Role::kCopy || role == Role::kCache;
}

bool holds_columns(const TensorInfo& t) {
  return t.shard_axis == 1 && t.shard_of.has_value() && t.shard_of->rank() == 2 &&
         t.type.shape.rank() == 2 && t.type.shape[0] == (*t.shard_of)[0];
}

}  // namespace

void Graph::verify() const {
  std::set<std::string_view> names;
  for (const TensorInfo& t : tensors_) {
    if (t.role == Role::kRemoved) continue;
    TRAINYARD_CHECK(names.insert(t.name).second, "tensor name " + t.name + " is used twice");
    const bool computed = t.role == Role::kActivation || t.role == Role::kGradient;
    TRAINYARD_CHECK(
        computed == (t.producer != kNoNode),
        t.name + ": role " + std::string(name_of(t.role)) + " does not fit its producer");
    TRAINYARD_CHECK(t.layout == Layout::kRowMajor || t.type.shape.rank() == 4,
                    t.name + ": channels-last needs rank 4");
    TRAINYARD_CHECK(!is_persistent(t.role) || t.spread == Spread::kOwn ||
                        (is_part(t.spread) && t.shard_of.has_value()),
                    t.name + ": a sharded tensor has no whole shape");
    TRAINYARD_CHECK(t.shard_axis == 0 || holds_columns(t),
                    t.name + ": its shards are not columns of its whole shape");
    TRAINYARD_CHECK(!t.shard_of.has_value() || is_part(t.spread),
                    t.name + ": a shard is marked as a whole tensor");
    const bool may_be_half = t.role == Role::kActivation || t.role == Role::kCopy ||
                             t.role == Role::kCache ||
                             (t.role == Role::kParameter && t.spread == Spread::kOwn);
    TRAINYARD_CHECK(!t.is_half() || (t.type.dtype == DType::kF32 && may_be_half),
                    t.name +
                        ": only a whole F32 parameter, an activation, a copy or a cache is "
                        "stored in 16 bits");
  }
  std::vector<bool> defined(tensors_.size());
  std::vector<bool> mutated(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) defined[i] = tensors_[i].producer == kNoNode;
  names.clear();
  for (size_t k = 0; k < nodes_.size(); ++k) {
    const Node& n = nodes_[k];
    TRAINYARD_CHECK(names.insert(n.name).second, "node name " + n.name + " is used twice");
    const std::vector<int64_t> updated = n.op->mutated_inputs(n);
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const TensorId id = n.inputs[i];
      if (id == kNoTensor) continue;
      const auto index = static_cast<size_t>(id);
      TRAINYARD_CHECK(defined.at(index),
                      n.name + " reads " + tensor(id).name + " before it is defined");
      TRAINYARD_CHECK(tensor(id).role != Role::kRemoved,
                      n.name + " reads " + tensor(id).name + ", which was removed");
      TRAINYARD_CHECK(!mutated[index] || std::ranges::count(updated, static_cast<int64_t>(i)) > 0,
                      n.name + " reads " + tensor(id).name + " after it was updated in place");
    }
    for (const int64_t i : updated) {
      const TensorId id = n.inputs.at(static_cast<size_t>(i));
      if (id == kNoTensor) continue;
      TRAINYARD_CHECK(tensor(id).role != Role::kParameter || !tensor(id).is_half(),
                      n.name + " updates " + tensor(id).name + ", which is stored in 16 bits");
      TRAINYARD_CHECK(is_persistent(tensor(id).role), n.name + " updates " + tensor(id).name +
                                                          ", which is neither parameter nor state");
      TRAINYARD_CHECK(std::count(n.inputs.begin(), n.inputs.end(), id) == 1,
                      n.name + " updates " + tensor(id).name + " and reads it by another input");
      mutated[static_cast<size_t>(id)] = tensor(id).role != Role::kCache;
    }
    const auto types = n.op->infer(InferContext(*this, n.attributes, n.inputs));
    TRAINYARD_CHECK(types.ok(), n.name + ": " + (types.ok() ? "" : types.error().message));
    TRAINYARD_CHECK(types->size() == n.outputs.size(), n.name + ": wrong number of outputs");
    const auto spreads = spread_outputs(*this, *n.op, n.inputs, n.outputs.size());
    TRAINYARD_CHECK(spreads.ok(), n.name + ": " + (spreads.ok() ? "" : spreads.error().message));
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const TensorId id = n.outputs[i];
      if (id == kNoTensor) continue;
      TRAINYARD_CHECK(
          tensor(id).spread == (*spreads)[i],
          tensor(id).name + ": its spread differs from the one that " + n.name + " gives");
      TRAINYARD_CHECK(!defined.at(static_cast<size_t>(id)), tensor(id).name + " is defined twice");
      TRAINYARD_CHECK(tensor(id).producer == static_cast<NodeId>(k),
                      tensor(id).name + ": its producer is not " + n.name);
      TRAINYARD_CHECK(tensor(id).type == (*types)[i],
                      tensor(id).name + ": its type is not what " + n.name + " infers");
      defined[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TRAINYARD_CHECK(defined[i], tensors_[i].name + " is never defined");
  }
}

}  // namespace trainyard
