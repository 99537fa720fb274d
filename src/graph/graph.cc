#include "src/graph/graph.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/graph/op.h"

namespace trainyard {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kInput:
      return "input";
    case Role::kParameter:
      return "parameter";
    case Role::kState:
      return "state";
    case Role::kOptimizerState:
      return "optimizer_state";
    case Role::kAccumulator:
      return "accumulator";
    case Role::kCopy:
      return "copy";
    case Role::kCache:
      return "cache";
    case Role::kActivation:
      return "activation";
    case Role::kGradient:
      return "gradient";
    case Role::kRemoved:
      return "removed";
  }
  return "?";
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
  }
  return "?";
}

std::string_view name_of(Spread spread) {
  switch (spread) {
    case Spread::kOwn:
      return "own";
    case Spread::kGathered:
      return "gathered";
    case Spread::kClasses:
      return "classes";
    case Spread::kUnits:
      return "units";
    case Spread::kElements:
      return "elements";
    case Spread::kSummand:
      return "summand";
  }
  return "?";
}

TensorId Graph::add_tensor(TensorInfo info) {
  TRAINYARD_CHECK(
      info.role != Role::kActivation && info.role != Role::kGradient && info.role != Role::kRemoved,
      "tensor " + info.name + " has no producer, but role activation or gradient");
  info.producer = kNoNode;
  return define(std::move(info));
}

TensorId Graph::define(TensorInfo info) {
  TRAINYARD_CHECK(!info.name.empty(), "a tensor has no name");
  TRAINYARD_CHECK(info.type.shape.fits(),
                  info.name + ": shape " + info.type.shape.to_string() + " is out of range");
  const TensorId id = static_cast<TensorId>(tensors_.size());
  const bool is_new = tensor_by_name_.emplace(info.name, id).second;
  TRAINYARD_CHECK(is_new, "tensor name " + info.name + " is used twice");
  tensors_.push_back(std::move(info));
  return id;
}

Result<NodeId> Graph::add_node(std::string name, const Op& op, Attributes attributes,
                               std::vector<TensorId> inputs, std::vector<std::string> output_names,
                               Phase phase) {
  for (const TensorId id : inputs) {
    TRAINYARD_CHECK(id >= kNoTensor && id < static_cast<TensorId>(tensors_.size()),
                    name + ": input " + std::to_string(id) + " does not exist");
  }
  auto types = op.infer(InferContext(*this, attributes, inputs));
  if (!types.ok()) {
    Error error = std::move(types).error();
    error.message = name + ": " + error.message;
    return error;
  }
  TRAINYARD_CHECK(types->size() == output_names.size(),
                  name + ": " + std::string(op.type()) + " has " + std::to_string(types->size()) +
                      " outputs, not " + std::to_string(output_names.size()));
  for (const TensorType& type : *types) {
    if (!type.shape.fits()) {
      return make_error(ErrorCode::kInvalidArgument, "SHAPE_OUT_OF_RANGE",
                        name + ": output shape " + type.shape.to_string() + " has more than " +
                            std::to_string(Shape::kElementsMax) + " elements");
    }
  }
  auto spreads = spread_outputs(*this, op, inputs, output_names.size());
  if (!spreads.ok()) {
    Error error = std::move(spreads).error();
    error.message = name + ": " + error.message;
    return error;
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node{std::move(name), &op, std::move(attributes), std::move(inputs), {}, phase};
  const bool is_new = node_names_.insert(node.name).second;
  TRAINYARD_CHECK(is_new, "node name " + node.name + " is used twice");
  for (size_t i = 0; i < output_names.size(); ++i) {
    if (output_names[i].empty()) {
      node.outputs.push_back(kNoTensor);
      continue;
    }
    TensorInfo info{output_names[i], (*types)[i], Role::kActivation, Layout::kRowMajor, id, {}};
    info.spread = (*spreads)[i];
    node.outputs.push_back(define(std::move(info)));
  }
  nodes_.push_back(std::move(node));
  return id;
}

void Graph::rewrite(std::vector<Node> nodes) {
  std::vector<NodeId> producers(tensors_.size(), kNoNode);
  node_names_.clear();
  for (size_t k = 0; k < nodes.size(); ++k) {
    TRAINYARD_CHECK(node_names_.insert(nodes[k].name).second,
                    "node name " + nodes[k].name + " is used twice");
    for (const TensorId id : nodes[k].outputs) {
      if (id == kNoTensor) continue;
      NodeId& producer = producers.at(static_cast<size_t>(id));
      TRAINYARD_CHECK(tensor(id).producer != kNoNode && producer == kNoNode,
                      nodes[k].name + " cannot define " + tensor(id).name);
      producer = static_cast<NodeId>(k);
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TensorInfo& t = tensors_[i];
    if (t.producer == kNoNode) continue;
    t.producer = producers[i];
    if (t.producer != kNoNode) continue;
    TRAINYARD_CHECK(
        std::find(outputs_.begin(), outputs_.end(), static_cast<TensorId>(i)) == outputs_.end(),
        "the output " + t.name + " was removed");
    erase(t);
  }
  nodes_ = std::move(nodes);
}

void Graph::erase(TensorInfo& t) {
  tensor_by_name_.erase(t.name);
  t.role = Role::kRemoved;
  t.layout = Layout::kRowMajor;
  t.storage = Storage::kAsTyped;
  t.type.shape = Shape{0};
}

void Graph::make_shard(TensorId id, Shape shard) {
  TensorInfo& t = tensors_.at(static_cast<size_t>(id));
  TRAINYARD_CHECK(t.producer == kNoNode && t.role != Role::kRemoved && !t.shard_of.has_value(),
                  t.name + " cannot become a shard");
  t.shard_of = t.type.shape;
  t.type.shape = std::move(shard);
  t.layout = Layout::kRowMajor;
  t.spread = Spread::kElements;
}

void Graph::remove(TensorId id) {
  TensorInfo& t = tensors_.at(static_cast<size_t>(id));
  TRAINYARD_CHECK(t.producer == kNoNode && std::ranges::count(outputs_, id) == 0,
                  t.name + " cannot be removed: it is computed, or an output");
  erase(t);
}

std::optional<TensorId> Graph::find_tensor(std::string_view name) const {
  const auto it = tensor_by_name_.find(name);
  if (it == tensor_by_name_.end()) return std::nullopt;
  return it->second;
}

void Graph::mark_output(TensorId id) {
  (void)tensor(id);
  if (std::find(outputs_.begin(), outputs_.end(), id) == outputs_.end()) outputs_.push_back(id);
}

std::string Graph::dump() const {
  const auto type_text = [this](TensorId id) {
    const TensorInfo& t = tensor(id);
    return (t.is_bf16()  ? "BF16"
            : t.is_f16() ? "F16"
                         : std::string(name_of(t.type.dtype))) +
           t.type.shape.to_string() + (t.layout == Layout::kChannelsLast ? "@nhwc" : "") +
           (t.spread == Spread::kOwn ? "" : "@" + std::string(name_of(t.spread)));
  };
  const auto name_text = [this](TensorId id) { return id == kNoTensor ? "-" : tensor(id).name; };
  std::string text;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& t = tensors_[i];
    if (t.producer != kNoNode || t.role == Role::kRemoved) continue;
    text += std::string(name_of(t.role)) + " " + t.name + ": " +
            type_text(static_cast<TensorId>(i)) + "\n";
  }
  Phase phase = Phase::kForward;
  for (const Node& n : nodes_) {
    if (n.phase != phase) text += "# " + std::string(name_of(phase = n.phase)) + "\n";
    text += n.name + " = " + std::string(n.op->type());
    if (!n.attributes.items().empty()) text += n.attributes.to_string();
    text += "(";
    for (size_t i = 0; i < n.inputs.size(); ++i)
      text += (i > 0 ? ", " : "") + name_text(n.inputs[i]);
    text += ")";
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      text += i == 0 ? " -> " : ", ";
      text += name_text(n.outputs[i]);
      if (n.outputs[i] != kNoTensor) text += ": " + type_text(n.outputs[i]);
    }
    text += "\n";
  }
  for (const TensorId id : outputs_) text += "output " + tensor(id).name + "\n";
  return text;
}

}  // namespace trainyard
