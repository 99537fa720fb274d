#include "src/optim/optimizer.h"

#include <algorithm>
#include <limits>

#include "src/base/check.h"
#include "src/ops/all_reduce.h"
#include "src/ops/clip_gradient.h"
#include "src/ops/gradient_norm.h"
#include "src/ops/loss_scale_update.h"
#include "src/ops/optimizer_update.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

TensorId add_scalar_input(Graph& graph, const std::string& name, DType dtype) {
  return graph.add_tensor({name, {{1}, dtype}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
}

/// Appends the updates of one job. There is one member function per optimizer, which adds the state
/// and the update node.
class Updates {
 public:
  Updates(Graph& graph, const OptimizerSpec& spec, UpdateInputs inputs, const Updater& updater)
      : graph_(graph), spec_(spec), inputs_(inputs), updater_(updater) {}

  void add(TensorId parameter, TensorId gradient, const ParameterRule& rule) {
    p_ = parameter;
    g_ = gradient;
    rule_ = rule;
    const std::string& type = spec_.type;
    if (type == "sgd") return sgd();
    if (type == "rmsprop") return rmsprop();
    if (type == "lion") return lion();
    if (type == "adafactor") return adafactor();
    if (type == "muon" && rule.hidden_matrix) return muon();
    if (type == "muon" && spec_.fallback_learning_rate > 0) {
      rule_.rate_factor *= spec_.fallback_learning_rate / spec_.learning_rate;
    }
    adam(type == "adam" ? get_op("AdamUpdate") : get_op("AdamWUpdate"));
  }

 private:
  /// Adds a state tensor of the parameter's type that starts at 0, with the parameter's shape if
  /// none is given.
  TensorId state(const std::string& suffix) {
    const TensorInfo& p = graph_.tensor(p_);
    if (!is_sharded()) return state(suffix, p.type.shape, p.shard_of);
    return state(suffix, shard_type(p.type, updater_.ranks).shape, p.type.shape, Spread::kElements);
  }
  TensorId state(const std::string& suffix, const Shape& shape,
                 const std::optional<Shape>& shard_of = {},
                 const std::optional<Spread>& spread = {}) {
    const TensorInfo& p = graph_.tensor(p_);
    TensorInfo info{p.name + "." + suffix,
                    {shape, p.type.dtype},
                    Role::kOptimizerState,
                    Layout::kRowMajor,
                    kNoNode,
                    {}};
    info.shard_like(p);
    info.shard_of = shard_of;
    info.spread = spread.value_or(p.spread);
    return graph_.add_tensor(std::move(info));
  }
  /// Returns whether this rank updates only a shard of the parameter, although it has the whole
  /// parameter.
  bool is_sharded() const {
    return updater_.is_sharded && graph_.tensor(p_).spread == Spread::kOwn;
  }

  void node(const Op& op, Attributes attributes, std::vector<TensorId> inputs) {
    attributes.set("weight_decay", rule_.weight_decay);
    if (rule_.rate_factor != 1) attributes.set("rate_factor", rule_.rate_factor);
    if (is_sharded()) {
      attributes.set(kRank, updater_.rank);
      attributes.set(kRanks, updater_.ranks);
    }
    inputs.insert(inputs.begin(), {p_, g_, inputs_.learning_rate});
    if (rule_.rows != kNoTensor) inputs.push_back(rule_.rows);
    graph_
        .add_node(graph_.tensor(p_).name + "/update", op, std::move(attributes), std::move(inputs),
                  {}, Phase::kUpdate)
        .value();
  }

  void sgd() {
    const TensorId velocity = spec_.momentum == 0 ? kNoTensor : state("momentum");
    node(get_op("SgdUpdate"), {{"momentum", spec_.momentum}, {"nesterov", int64_t{spec_.nesterov}}},
         {velocity});
  }
  void adam(const Op& op) {
    const TensorId m = state("exp_avg");
    const TensorId v = state("exp_avg_sq");
    node(op, {{"beta1", spec_.beta1}, {"beta2", spec_.beta2}, {"epsilon", spec_.epsilon}},
         {inputs_.step, m, v});
  }
  void rmsprop() {
    const TensorId square = state("square_avg");
    const TensorId mean = spec_.centered ? state("grad_avg") : kNoTensor;
    const TensorId velocity = spec_.momentum == 0 ? kNoTensor : state("momentum");
    node(get_op("RmspropUpdate"),
         {{"alpha", spec_.alpha}, {"epsilon", spec_.epsilon}, {"momentum", spec_.momentum}},
         {square, mean, velocity});
  }
  void lion() {
    node(get_op("LionUpdate"), {{"beta1", spec_.beta1}, {"beta2", spec_.beta2}},
         {state("exp_avg")});
  }
  void adafactor() {
    const FactoredShapes shapes = factored_shapes(graph_.tensor(p_).type.shape);
    const TensorId column = state("col_var", shapes.column);
    const TensorId row =
        graph_.tensor(p_).type.shape.rank() > 1 ? state("row_var", shapes.row) : kNoTensor;
    node(get_op("AdafactorUpdate"),
         {{"beta2_decay", spec_.beta2_decay},
          {"epsilon", spec_.epsilon},
          {"scale_min", spec_.scale_min},
          {"clip_threshold", spec_.clip_threshold}},
         {inputs_.step, column, row});
  }
  void muon() {
    node(get_op("MuonUpdate"),
         {{"momentum", spec_.momentum},
          {"nesterov", int64_t{spec_.nesterov}},
          {"iterations", spec_.newton_schulz_steps},
          {"match_adamw", int64_t{spec_.adjust_rate == "match_rms_adamw"}}},
         {state("momentum")});
  }

  Graph& graph_;
  const OptimizerSpec& spec_;
  const UpdateInputs inputs_;
  const Updater updater_;
  TensorId p_ = kNoTensor, g_ = kNoTensor;
  ParameterRule rule_;
};

constexpr double kLossScaleFirst = 65536;

TensorId add_scalar_state(Graph& graph, const std::string& name, DType dtype, double first) {
  return graph.add_tensor({name,
                           {{1}, dtype},
                           Role::kOptimizerState,
                           Layout::kRowMajor,
                           kNoNode,
                           {Initializer::Kind::kConstant, first}});
}

ScaledStep append_loss_scale(Graph& graph, const LossScaling& s, TensorId learning_rate) {
  const NodeId node =
      graph
          .add_node("loss_scale/update", *loss_scale_update_op(), {},
                    {s.scale, s.good_steps, s.updates, s.norm, learning_rate},
                    {"loss_scale/learning_rate", "loss_scale/step", "loss_scale/scale"},
                    Phase::kUpdate)
          .value();
  const std::vector<TensorId>& outputs = graph.node(node).outputs;
  const ScaledStep step{outputs[0], outputs[1], outputs[2]};
  graph.mark_output(step.learning_rate);
  graph.mark_output(step.scale);
  return step;
}

/// Returns the elements of a rank's part whose squares are summed: all but the padding. If the part
/// is a range of columns, the padding is included, which changes nothing because it is 0.
kernels::ShardRange part_range(const TensorInfo& p, int64_t rank) {
  return p.shard_axis == 0 ? shard_range_of(p, rank)
                           : kernels::ShardRange{0, p.type.shape.elements()};
}

/// Appends the exchange of the sums of squares and returns their mean over all ranks. Each rank
/// sums the squares of its parts, and of its shards of the gradients that all ranks have.
TensorId append_squares(Graph& graph, const std::map<TensorId, TensorId>& gradients,
                        const Updater& updater) {
  std::vector<TensorId> inputs;
  std::vector<int64_t> counts, firsts;
  for (const auto& [parameter, gradient] : gradients) {
    const TensorInfo& p = graph.tensor(parameter);
    const bool is_whole = p.spread == Spread::kOwn && !updater.is_sharded;
    const kernels::ShardRange range = p.spread == Spread::kOwn
                                          ? shard_range(p.type, updater.rank, updater.ranks)
                                          : part_range(p, updater.rank);
    inputs.push_back(gradient);
    counts.push_back(range.count);
    firsts.push_back(is_whole ? range.first : 0);
  }
  Attributes counted{{"counts", counts}};
  if (std::ranges::any_of(firsts, [](int64_t first) { return first > 0; })) {
    counted.set("firsts", firsts);
  }
  const auto add = [&](const char* name, const Op& op, Attributes attributes,
                       std::vector<TensorId> of) {
    const std::string whole = std::string("gradient_squares") + name;
    const NodeId node =
        graph.add_node(whole, op, std::move(attributes), std::move(of), {whole}, Phase::kUpdate)
            .value();
    return graph.node(node).outputs[0];
  };
  // A number that no bucket has.
  const Attributes exchange{{"bucket", int64_t{std::numeric_limits<int32_t>::max()}}};
  const TensorId mine = add("", *gradient_squares_op(), std::move(counted), std::move(inputs));
  const TensorId started = add("/start", *all_reduce_start_op(), exchange, {mine});
  return add("/done", *all_reduce_done_op(), exchange, {kNoTensor, started});
}

bool counts_steps(const std::string& type) {
  return type == "adam" || type == "adamw" || type == "adafactor" || type == "muon";
}

}  // namespace

bool updates_elements(const OptimizerSpec& spec) {
  return spec.type == "sgd" || spec.type == "adam" || spec.type == "adamw" || spec.type == "lion" ||
         spec.type == "rmsprop";
}
bool can_shard(const OptimizerSpec& spec) {
  return updates_elements(spec) && (spec.type != "sgd" || spec.momentum > 0);
}

TensorId add_loss_scale(Graph& graph) {
  return add_scalar_state(graph, "loss_scale.scale", DType::kF32, kLossScaleFirst);
}

LossScaling add_loss_scaling(Graph& graph, TensorId scale) {
  return {scale, add_scalar_state(graph, "loss_scale.good_steps", DType::kI64, 0),
          add_scalar_state(graph, "loss_scale.updates", DType::kI64, 0), kNoTensor};
}

UpdateInputs append_optimizer(Graph& graph, const OptimizerSpec& spec,
                              const std::map<TensorId, TensorId>& gradients, TensorId step,
                              const std::map<TensorId, ParameterRule>& rules,
                              const LossScaling& scaling, const Updater& updater) {
  TRAINYARD_CHECK(std::ranges::count(optimizer_types(), spec.type) == 1 &&
                      (!updater.is_sharded || can_shard(spec)),
                  "optimizer " + spec.type + " was not checked");
  UpdateInputs inputs{add_scalar_input(graph, "learning_rate", DType::kF32), step, {}};
  UpdateInputs read;  // the inputs that the updates read
  if (scaling.scale != kNoTensor) {
    inputs.scaled = append_loss_scale(graph, scaling, inputs.learning_rate);
    read = {inputs.scaled.learning_rate, inputs.scaled.step, {}};
  } else {
    if (counts_steps(spec.type) && step == kNoTensor) {
      inputs.step = add_scalar_input(graph, "step", DType::kI64);
    }
    read = inputs;
  }
  Updates updates(graph, spec, read, updater);
  for (const auto& [parameter, gradient] : gradients) {
    const auto rule = rules.find(parameter);
    updates.add(
        parameter, gradient,
        rule != rules.end() ? rule->second : ParameterRule{.weight_decay = spec.weight_decay});
  }
  return inputs;
}

PreparedGradients append_clipping(Graph& graph, const GradientSpec& spec,
                                  const std::map<TensorId, TensorId>& gradients,
                                  TensorId loss_scale, const Updater& updater) {
  PreparedGradients prepared{gradients, kNoTensor};
  TensorId scale = kNoTensor;
  const bool scaled = loss_scale != kNoTensor;
  const bool reported = spec.clip_norm > 0 || spec.measure_norm;
  // Whether no rank has all gradients.
  const bool in_parts = updater.is_sharded || std::ranges::any_of(gradients, [&](const auto& g) {
                          return graph.tensor(g.second).spread != Spread::kOwn;
                        });
  if (reported || scaled) {
    std::vector<TensorId> inputs;
    if (in_parts) {
      inputs.push_back(append_squares(graph, gradients, updater));
    } else {
      for (const auto& [parameter, gradient] : gradients) inputs.push_back(gradient);
    }
    Attributes attributes{{"max_norm", spec.clip_norm}};
    if (scaled) {
      inputs.push_back(loss_scale);
      attributes.set("scaled", int64_t{1});
    }
    if (updater.ranks > 1) attributes.set(kRanks, updater.ranks);
    const Op& op = in_parts ? *norm_of_squares_op() : *gradient_norm_op();
    const NodeId node =
        graph
            .add_node("gradient_norm", op, std::move(attributes), std::move(inputs),
                      {"gradient_norm", spec.clip_norm > 0 || scaled ? "gradient_norm/scale" : ""},
                      Phase::kUpdate)
            .value();
    prepared.norm = graph.node(node).outputs[0];
    scale = graph.node(node).outputs[1];
    if (reported) graph.mark_output(prepared.norm);
  }
  if (scale == kNoTensor && spec.clip_value == 0) return prepared;
  for (auto& [parameter, gradient] : prepared.gradients) {
    const std::string name = graph.tensor(parameter).name + "/clip";
    std::vector<TensorId> inputs = {gradient};
    if (scale != kNoTensor) inputs.push_back(scale);
    const NodeId node = graph
                            .add_node(name, *clip_gradient_op(), {{"bound", spec.clip_value}},
                                      std::move(inputs), {name}, Phase::kUpdate)
                            .value();
    gradient = graph.node(node).outputs[0];
    graph.set_role(gradient, Role::kGradient);
  }
  return prepared;
}

}  // namespace trainyard
