#include "src/optim/optimizer.h"

#include "src/base/check.h"
#include "src/ops/adam_update.h"
#include "src/ops/sgd_update.h"

namespace trainyard {
namespace {

TensorId add_scalar_input(Graph& graph, const std::string& name, DType dtype) {
  return graph.add_tensor({name, {{1}, dtype}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
}

/// Zero at first, of the parameter's type.
TensorId add_moment(Graph& graph, TensorId parameter, const std::string& suffix) {
  const TensorInfo& p = graph.tensor(parameter);
  return graph.add_tensor(
      {p.name + "." + suffix, p.type, Role::kOptimizerState, Layout::kRowMajor, kNoNode, {}});
}

}  // namespace

UpdateInputs append_optimizer(Graph& graph, const OptimizerSpec& spec,
                              const std::map<TensorId, TensorId>& gradients, TensorId step) {
  const bool is_sgd = spec.type == "sgd";
  TRAINYARD_CHECK(is_sgd || spec.type == "adam" || spec.type == "adamw",
                  "optimizer " + spec.type + " was not checked");
  UpdateInputs inputs{add_scalar_input(graph, "learning_rate", DType::kF32), step};
  if (!is_sgd && step == kNoTensor) inputs.step = add_scalar_input(graph, "step", DType::kI64);
  for (const auto& [parameter, gradient] : gradients) {
    const std::string name = graph.tensor(parameter).name + "/update";
    if (is_sgd) {
      const TensorId velocity =
          spec.momentum == 0 ? kNoTensor : add_moment(graph, parameter, "momentum");
      graph
          .add_node(name, *sgd_update_op(),
                    {{"momentum", spec.momentum},
                     {"nesterov", int64_t{spec.nesterov}},
                     {"weight_decay", spec.weight_decay}},
                    {parameter, gradient, inputs.learning_rate, velocity}, {}, Phase::kUpdate)
          .value();
      continue;
    }
    const TensorId m = add_moment(graph, parameter, "exp_avg");
    const TensorId v = add_moment(graph, parameter, "exp_avg_sq");
    graph
        .add_node(name, spec.type == "adamw" ? *adamw_update_op() : *adam_update_op(),
                  {{"beta1", spec.beta1},
                   {"beta2", spec.beta2},
                   {"epsilon", spec.epsilon},
                   {"weight_decay", spec.weight_decay}},
                  {parameter, gradient, inputs.learning_rate, inputs.step, m, v}, {},
                  Phase::kUpdate)
        .value();
  }
  return inputs;
}

}  // namespace trainyard
