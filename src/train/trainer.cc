// One job from spec to trained model: open the data, plan, allocate, load, loop, write the model.
#include "src/train/trainer.h"

#include "src/train/loop.h"
#include "src/train/model_artifact.h"
#include "src/train/programs.h"

namespace trainyard {

Result<TrainResult> train(const TrainJob& job, Backend& backend, Files& files, Reporter& reporter,
                          std::stop_token stop) {
  // The digest was verified when the dataset was made; sizes are checked again here.
  ASSIGN_OR_RETURN(const Dataset data, Dataset::open(job.dataset, /*verify_digest=*/false));
  const DatasetSchema& schema = data.schema();
  ASSIGN_OR_RETURN(const RunShape shape, check_recipe(job.recipe, schema));
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(job.model, job.recipe, schema, shape));
  if (Status s = check_kernels(programs, backend); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const std::string digest, job_digest(job));

  RunPlan plan = describe_run(programs, shape);
  const Split split =
      split_dataset(schema, shape.context_length, job.recipe.validation_split, job.recipe.seed);
  const Preprocessing preprocessing =
      fit_preprocessing(schema, data.train(), split.train, shape.context_length);

  Session session(std::move(programs), backend);
  plan.memory.workspace_bytes = session.workspace_bytes();
  ASSIGN_OR_RETURN(const std::optional<LoopState> resumed,
                   resume(job, digest, backend.name(), session, reporter));
  if (!resumed.has_value()) session.initialise(job.recipe.seed);
  plan.first_step = resumed.value_or(LoopState{}).step;
  reporter.started(plan);

  const LoopContext context{job, data, shape, preprocessing, split, digest, backend.name()};
  Loop loop(context, session, files, reporter, resumed.value_or(LoopState{}));
  if (Status s = loop.run(stop); !s.ok()) return std::move(s).error();

  const ModelInfo info{job.model,         schema,
                       preprocessing,     loop.final_metrics(),
                       loop.state().step, plan.parameter_count};
  if (Status s = write_model(files, job.model_output, info, loop.final_snapshot().weights);
      !s.ok()) {
    return std::move(s).error();
  }
  return TrainResult{loop.state().step, loop.final_metrics(), session.arena_planned_bytes(),
                     session.arena_used_bytes()};
}

}  // namespace trainyard
