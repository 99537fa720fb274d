#include "src/autodiff/differentiate.h"

#include <algorithm>
#include <set>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/add.h"
#include "src/ops/constant_of_shape.h"

namespace trainyard {
namespace {

/// The part of a tensor's gradient that comes from one of its readers.
struct Share {
  NodeId reader;
  int64_t input;
  TensorId gradient;
};

class Differentiation {
 public:
  Differentiation(Graph& graph, TensorId loss, const std::set<TensorId>& frozen,
                  const std::set<TensorId>& leaves)
      : graph_(graph),
        forward_count_(static_cast<NodeId>(graph.nodes().size())),
        loss_(loss),
        leaves_(leaves) {
    find_dependent_tensors(frozen);
  }

  std::map<TensorId, TensorId> run(TensorId seed);

 private:
  class Context;

  void find_dependent_tensors(const std::set<TensorId>& frozen);
  void seed_loss(TensorId seed);
  TensorId summed_gradient(TensorId id);

  Graph& graph_;
  const NodeId forward_count_;
  const TensorId loss_;
  const std::set<TensorId>& leaves_;
  std::set<TensorId> dependent_;  // trained parameters, leaves, and all tensors computed from them
  std::map<TensorId, std::vector<Share>> shares_;
  std::map<TensorId, TensorId> summed_;
};

/// Passes one forward node to its op. Keeps a copy of the node, because appending nodes reallocates
/// the graph's list.
class Differentiation::Context final : public GradientContext {
 public:
  Context(Differentiation& d, NodeId id) : d_(d), id_(id), node_(d.graph_.node(id)) {
    for (const TensorId output : node_.outputs) {
      grad_outputs_.push_back(output == kNoTensor ? kNoTensor : d.summed_gradient(output));
    }
  }
  bool is_reached() const {
    return std::any_of(grad_outputs_.begin(), grad_outputs_.end(),
                       [](TensorId g) { return g != kNoTensor; });
  }
  bool leads_to_parameter() const {
    return std::any_of(node_.inputs.begin(), node_.inputs.end(),
                       [&](TensorId i) { return d_.dependent_.contains(i); });
  }

  const Graph& graph() const override { return d_.graph_; }
  const Node& node() const override { return node_; }
  TensorId grad_output(int64_t i) const override {
    return grad_outputs_.at(static_cast<size_t>(i));
  }
  bool needs_grad(int64_t i) const override { return d_.dependent_.contains(input(i)); }

  std::vector<TensorId> add(std::string_view suffix, const Op& op, Attributes attributes,
                            std::vector<TensorId> inputs, std::vector<bool> wanted) override {
    const std::string name = node_.name + "/" + std::string(suffix);
    std::vector<std::string> outputs;
    for (size_t k = 0; k < wanted.size(); ++k) {
      outputs.push_back(wanted[k] ? name + "." + std::to_string(k) : "");
    }
    // value() faults on an error, because an op that refuses its own backward node is a bug and not
    // a user's error.
    const NodeId added = d_.graph_
                             .add_node(name, op, std::move(attributes), std::move(inputs),
                                       std::move(outputs), Phase::kBackward)
                             .value();
    return d_.graph_.node(added).outputs;
  }

  void set_grad(int64_t i, TensorId gradient) override {
    const TensorId id = input(i);
    TRAINYARD_CHECK(d_.graph_.tensor(id).type == d_.graph_.tensor(gradient).type,
                    node_.name + ": the gradient of input " + std::to_string(i) +
                        " has another type than the input");
    if (!needs_grad(i)) return;
    d_.shares_[id].push_back({id_, i, gradient});
  }

 private:
  Differentiation& d_;
  const NodeId id_;
  const Node node_;
  std::vector<TensorId> grad_outputs_;
};

void Differentiation::find_dependent_tensors(const std::set<TensorId>& frozen) {
  for (size_t i = 0; i < graph_.tensors().size(); ++i) {
    const auto id = static_cast<TensorId>(i);
    if (graph_.tensor(id).role == Role::kParameter && !frozen.contains(id)) dependent_.insert(id);
  }
  dependent_.insert(leaves_.begin(), leaves_.end());
  for (const Node& node : graph_.nodes()) {
    if (std::none_of(node.inputs.begin(), node.inputs.end(),
                     [&](TensorId i) { return dependent_.contains(i); })) {
      continue;
    }
    for (const TensorId output : node.outputs) {
      if (output != kNoTensor) dependent_.insert(output);
    }
  }
}

void Differentiation::seed_loss(TensorId seed) {
  const TensorInfo& loss = graph_.tensor(loss_);
  TRAINYARD_CHECK(loss.type.shape == Shape{1} && is_float(loss.type.dtype),
                  loss.name + " is not a loss: " + loss.type.shape.to_string());
  if (seed != kNoTensor) {
    TRAINYARD_CHECK(graph_.tensor(seed).type == loss.type, "the seed has another type");
    summed_[loss_] = seed;
    return;
  }
  const std::string name = loss.name + "/seed";
  const Attributes one{{"shape", std::vector<int64_t>{1}},
                       {"value", 1.0},
                       {"dtype", std::string(name_of(loss.type.dtype))}};
  const NodeId made =
      graph_.add_node(name, *constant_of_shape_op(), one, {}, {name}, Phase::kBackward).value();
  summed_[loss_] = graph_.node(made).outputs[0];
}

/// Requires that all readers of `id` have been differentiated. The shares are summed in the order
/// of their readers in the graph, so that the sum does not depend on the order of the backward
/// pass.
TensorId Differentiation::summed_gradient(TensorId id) {
  if (const auto it = summed_.find(id); it != summed_.end()) return it->second;
  const auto found = shares_.find(id);
  if (found == shares_.end()) return kNoTensor;
  std::vector<Share>& shares = found->second;
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) {
    return std::pair(a.reader, a.input) < std::pair(b.reader, b.input);
  });
  TensorId sum = shares.front().gradient;
  for (size_t k = 1; k < shares.size(); ++k) {
    const std::string name = graph_.tensor(id).name + "/grad_sum" + std::to_string(k);
    const NodeId added =
        graph_.add_node(name, *add_op(), {}, {sum, shares[k].gradient}, {name}, Phase::kBackward)
            .value();
    sum = graph_.node(added).outputs[0];
  }
  return summed_[id] = sum;
}

std::map<TensorId, TensorId> Differentiation::run(TensorId seed) {
  seed_loss(seed);
  for (NodeId k = forward_count_ - 1; k >= 0; --k) {
    Context context(*this, k);
    if (context.is_reached() && context.leads_to_parameter()) {
      context.node().op->differentiate(context);
    }
  }
  std::map<TensorId, TensorId> gradients;
  for (TensorId id = 0; id < static_cast<TensorId>(graph_.tensors().size()); ++id) {
    if (graph_.tensor(id).role != Role::kParameter && !leaves_.contains(id)) continue;
    const TensorId gradient = summed_gradient(id);
    if (gradient != kNoTensor) gradients[id] = gradient;
  }
  for (const auto& [parameter, gradient] : gradients) {
    graph_.set_role(gradient, Role::kGradient);
    for (const Share& share : shares_[parameter]) graph_.set_role(share.gradient, Role::kGradient);
  }
  return gradients;
}

}  // namespace

std::map<TensorId, TensorId> differentiate(Graph& graph, TensorId loss,
                                           const std::set<TensorId>& frozen, TensorId seed,
                                           const std::set<TensorId>& leaves) {
  return Differentiation(graph, loss, frozen, leaves).run(seed);
}

}  // namespace trainyard
