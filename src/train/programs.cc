#include "src/train/programs.h"

#include <algorithm>

#include "src/autodiff/differentiate.h"
#include "src/graph/op.h"

namespace trainyard {

Result<BoundProgram> compile_training(const ModelSpec& spec, const Recipe& recipe,
                                      const ModelInterface& interface, int64_t batch_size) {
  BuildOptions options;
  options.batch_size = batch_size;
  options.seed = recipe.seed;
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  const auto gradients = differentiate(model.graph, model.loss);
  const UpdateInputs update =
      append_optimizer(model.graph, recipe.optimizer, gradients, model.step);

  BoundProgram bound;
  bound.input = model.input;
  bound.target = model.target;
  bound.step = update.step != kNoTensor ? update.step : model.step;
  bound.learning_rate = update.learning_rate;
  bound.loss = model.loss;
  bound.output = model.output;
  bound.program = compile(std::move(model.graph), {});
  bound.batch_size = batch_size;
  return bound;
}

Result<BoundProgram> compile_inference(const ModelSpec& spec, const ModelInterface& interface,
                                       int64_t batch_size, const PersistentLayout* persistent) {
  BuildOptions options;
  options.batch_size = batch_size;
  options.training = false;
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  CompileOptions compile_options;
  compile_options.persistent = persistent;
  BoundProgram bound;
  bound.input = model.input;
  bound.output = model.output;
  bound.program = compile(std::move(model.graph), compile_options);
  bound.batch_size = batch_size;
  return bound;
}

Result<RunPrograms> compile_run(const ModelSpec& model, const Recipe& recipe,
                                const DatasetSchema& schema, const RunShape& shape) {
  const ModelInterface interface = schema.interface(shape.context_length);
  RunPrograms programs;
  ASSIGN_OR_RETURN(programs.train, compile_training(model, recipe, interface, recipe.batch_size));
  if (shape.evaluation_batch > 0) {
    const PersistentLayout layout = persistent_layout(programs.train.program);
    ASSIGN_OR_RETURN(programs.evaluate,
                     compile_inference(model, interface, shape.evaluation_batch, &layout));
  }
  return programs;
}

RunPlan describe_run(const RunPrograms& programs, const RunShape& shape) {
  const Program& train = programs.train.program;
  RunPlan plan;
  for (const TensorInfo& t : train.graph.tensors()) {
    if (t.role == Role::kParameter) plan.parameter_count += t.type.shape.elements();
  }
  plan.steps_total = shape.steps_total;
  plan.steps_per_epoch = shape.steps_per_epoch;
  plan.train_rows = shape.train_rows;
  plan.validation_rows = shape.validation_rows;
  plan.test_rows = shape.test_rows;
  plan.flops_per_step = train.flops;
  plan.memory = train.memory;
  if (programs.evaluate.has_value()) {
    const Program& evaluate = programs.evaluate->program;
    plan.memory.activation_bytes +=
        std::max<int64_t>(0, evaluate.transient_bytes - train.transient_bytes);
    plan.memory.workspace_bytes =
        std::max(train.memory.workspace_bytes, evaluate.memory.workspace_bytes);
  }
  return plan;
}

Result<RunPlan> plan_run(const ModelSpec& model, const Recipe& recipe,
                         const DatasetSchema& schema) {
  ASSIGN_OR_RETURN(const RunShape shape, check_recipe(recipe, schema));
  ASSIGN_OR_RETURN(const RunPrograms programs, compile_run(model, recipe, schema, shape));
  return describe_run(programs, shape);
}

}  // namespace trainyard
