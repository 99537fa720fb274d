// One job from spec to trained model: open the data, plan, allocate, load, loop, write the model.
#include "src/train/trainer.h"

#include "src/train/initial_weights.h"
#include "src/train/loop.h"
#include "src/train/model_artifact.h"
#include "src/train/programs.h"

namespace trainyard {

namespace {

/// First values: drawn, and then another model's where the recipe has one.
Result<std::optional<InitialWeightsReport>> begin(const TrainJob& job, Session& session,
                                                  Reporter& reporter) {
  session.initialise(job.recipe.seed);
  const InitialWeights& spec = job.recipe.initial_weights;
  if (spec.source.empty()) return std::optional<InitialWeightsReport>();
  const auto file = WeightsFile::open(job.initial_weights);
  if (!file.ok()) {
    return make_error(ErrorCode::kFailedPrecondition, "INITIAL_WEIGHTS_UNREADABLE",
                      "recipe.initial_weights: the weights of " + spec.source +
                          " cannot be read: " + file.error().message);
  }
  ASSIGN_OR_RETURN(InitialWeightsReport report, load_initial_weights(spec, *file, session));
  reporter.log(report.text());
  return std::optional(std::move(report));
}

}  // namespace

Result<TrainResult> train(const TrainJob& job, Backend& backend, Files& files, Reporter& reporter,
                          std::stop_token stop) {
  // The digest was verified when the dataset was made; sizes are checked again here.
  ASSIGN_OR_RETURN(const Dataset data, Dataset::open(job.dataset, /*verify_digest=*/false));
  const DatasetSchema& schema = data.schema();
  ASSIGN_OR_RETURN(const RunShape shape, check_recipe(job.recipe, job.model, schema));
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(job.model, job.recipe, schema, shape));
  if (Status s = check_kernels(programs, backend); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const std::string digest, job_digest(job));

  RunPlan plan = describe_run(programs, shape);
  const Split split =
      split_dataset(schema, shape.context_length, job.recipe.validation_split, job.recipe.seed);
  const Preprocessing preprocessing =
      fit_preprocessing(schema, data.train(), split.train,
                        {shape.context_length, shape.objective.unit_input(),
                         shape.objective.interface.category_codes});

  Session session(std::move(programs), backend, shape.micro_batches);
  plan.memory.workspace_bytes = session.workspace_bytes();
  ASSIGN_OR_RETURN(const std::optional<LoopState> resumed,
                   resume(job, digest, backend.name(), session, reporter));
  if (!resumed.has_value()) {
    ASSIGN_OR_RETURN(plan.initial_weights, begin(job, session, reporter));
  }
  plan.first_step = resumed.value_or(LoopState{}).step;
  reporter.started(plan);

  const LoopContext context{job, data, shape, preprocessing, split, digest, backend.name()};
  Loop loop(context, session, files, reporter, resumed.value_or(LoopState{}));
  if (Status s = loop.run(stop); !s.ok()) return std::move(s).error();

  ModelInfo info{job.model,
                 schema,
                 preprocessing,
                 loop.final_metrics(),
                 loop.state().step,
                 plan.parameter_count,
                 job.recipe.precision,
                 loop.confusion()};
  if (const BestState& best = loop.state().best; best.weights != nullptr) {
    info.best_metric = job.recipe.keep_best.metric;
    info.best_value = best.value;
    info.best_step = best.step;
  }
  Status written;
  if (job.recipe.lora.rank > 0) {
    const LoraModel model = split_lora(job.recipe, loop.model().weights);
    written = write_model(files, job.model_output, info, model.weights, &model);
  } else {
    written = write_model(files, job.model_output, info, loop.model().weights);
  }
  if (!written.ok()) return std::move(written).error();
  return TrainResult{
      loop.state().step,     loop.final_metrics(),          loop.confusion(),
      schema.target.classes, session.arena_planned_bytes(), session.arena_used_bytes()};
}

}  // namespace trainyard
