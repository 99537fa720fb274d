// src/train/trainer.cc: trains one job from spec to model: opens the data, plans, allocates, loads,
// runs the loop, writes the model.
#include "src/train/trainer.h"

#include <memory>
#include <optional>

#include "src/artifact/model_artifact.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/typed_bytes.h"
#include "src/data/load/packing.h"
#include "src/data/load/split.h"
#include "src/data/row_copies.h"
#include "src/data/warnings.h"
#include "src/planning/programs.h"
#include "src/planning/run_warnings.h"
#include "src/planning/weight_match.h"
#include "src/runtime/join.h"
#include "src/train/batch_source.h"
#include "src/train/initial_weights.h"
#include "src/train/loop.h"
#include "src/train/replicated_session.h"

namespace trainyard {

namespace {

/// Writes the initial weights: random ones, then those of another model if the recipe names one.
Result<std::optional<InitialWeightsReport>> begin(const TrainJob& job, TrainingSession& session,
                                                  Reporter& reporter) {
  session.initialize(job.recipe.seed);
  const InitialWeights& spec = job.recipe.initial_weights;
  if (spec.source.empty()) return std::optional<InitialWeightsReport>();
  const auto file = WeightsFile::open(job.initial_weights);
  if (!file.ok()) {
    // Without a path the model was deleted. With a path the file existed, so the error may be
    // temporary.
    const bool may_pass = !job.initial_weights.empty() && is_of_file_error(file.error().reason);
    return make_error(may_pass ? file.error().code : ErrorCode::kFailedPrecondition,
                      may_pass ? file.error().reason : "INITIAL_WEIGHTS_UNREADABLE",
                      "recipe.initial_weights: the weights of " + spec.source +
                          " cannot be read: " + file.error().message);
  }
  ASSIGN_OR_RETURN(InitialWeightsReport report, load_initial_weights(spec, *file, session));
  reporter.log(report.text());
  return std::optional(std::move(report));
}

/// Opens the file of initial weights and adds its tensors to the recipe: their types and places
/// decide how frozen parameters are stored. A file that cannot be read is an error only where its
/// values are needed: a job that resumes has them in its checkpoint. Null without a file. Without
/// `maps`, no parameter is read in the file.
std::shared_ptr<const WeightsFile> name_weights(TrainJob& job, bool maps) {
  if (job.recipe.initial_weights.source.empty()) return nullptr;
  auto file = WeightsFile::open(job.initial_weights);
  if (!file.ok()) return nullptr;
  auto tensors = std::make_shared<std::vector<FileTensor>>(file->tensors());
  if (!maps) {
    for (FileTensor& t : *tensors) t.offset = FileTensor::kNoOffset;
  }
  job.recipe.initial_weights.tensors = std::move(tensors);
  return std::make_shared<const WeightsFile>(std::move(*file));
}

/// Splits the rows as the recipe says, and puts documents into rows. Refuses a split without
/// training rows of a class.
Result<Split> split_job(const TrainJob& job, Dataset& data, const RunShape& shape) {
  const DatasetSchema& schema = data.schema();
  const SplitRule rule = job.recipe.split_rule();
  Split split = schema.documents ? split_documents(schema, data.train(), shape.context_length, rule)
                                 : split_dataset(schema, data.train(), shape.context_length, rule);
  TRAINYARD_CHECK(std::ssize(split.train) == shape.train_rows &&
                      std::ssize(split.validation) == shape.validation_rows,
                  "the split has other row counts than the plan");
  if (Status s =
          check_classes_remain(schema, rule, count_classes(schema, data.train(), split.train));
      !s.ok()) {
    return std::move(s).error();
  }
  if (schema.documents) {
    data.pack(split.packed, pack_all(schema, data.test(), shape.context_length, rule.packs));
    TRAINYARD_CHECK(data.test().packed->rows() == shape.test_rows,
                    "the test documents have other rows than the plan");
  }
  return split;
}

/// A job with its dataset opened.
struct OpenJob {
  const TrainJob& job;
  Dataset data;
  RunShape shape;
  Split split;
};
Result<OpenJob> open_job(const TrainJob& job, const Backend& backend) {
  // The digest was verified when the dataset was created; only the sizes are checked here.
  ASSIGN_OR_RETURN(Dataset data, Dataset::open(job.dataset, /*verify_digest=*/false));
  ASSIGN_OR_RETURN(RunShape shape,
                   check_recipe(job.recipe, job.model, data.schema(), job.ranks, backend.traits()));
  ASSIGN_OR_RETURN(Split split, split_job(job, data, shape));
  return OpenJob{job, std::move(data), std::move(shape), std::move(split)};
}

Result<RunPrograms> compile_rank(const OpenJob& open, int64_t rank, const Backend& backend) {
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(open.job.model, open.job.recipe,
                                                     open.data.schema(), open.shape, rank));
  if (Status s = check_kernels(programs, backend); !s.ok()) return std::move(s).error();
  return programs;
}

/// The state from which a job starts: a checkpoint, or the beginning.
struct Start {
  RunIdentity identity;
  std::optional<LoadedCheckpoint> checkpoint;
};
/// Finds the checkpoint before kernels are prepared, since the algorithms that it records are
/// preferred.
Result<Start> find_start(const TrainJob& job, const Backend& backend, Reporter& reporter) {
  ASSIGN_OR_RETURN(RunIdentity identity, RunIdentity::of(job));
  Start start{std::move(identity), std::nullopt};
  ASSIGN_OR_RETURN(start.checkpoint, find_checkpoint(job, start.identity, reporter));
  if (start.checkpoint.has_value() && backend.algorithms() != nullptr) {
    ASSIGN_OR_RETURN(AlgorithmRecord record, algorithms_of(*start.checkpoint));
    backend.algorithms()->prefer(std::move(record));
  }
  return start;
}

/// Reports the timing of algorithms to the log while kernels are prepared.
class TimingReports {
 public:
  TimingReports(const Backend& backend, const RunPlan& plan, Reporter& reporter)
      : algorithms_(backend.algorithms()) {
    if (algorithms_ == nullptr) return;
    algorithms_->expect_steps(plan.steps_total);
    algorithms_->report_to([&reporter](const std::string& text) { reporter.log(text); });
  }
  ~TimingReports() {
    if (algorithms_ != nullptr) algorithms_->report_to(nullptr);
  }
  TimingReports(const TimingReports&) = delete;
  TimingReports& operator=(const TimingReports&) = delete;

 private:
  Algorithms* algorithms_;
};

/// Creates a session for the devices' programs and prepares their kernels. The session keeps the
/// file of initial weights only if the programs have mapped parameters.
std::unique_ptr<TrainingSession> open_session(std::vector<RunPrograms> programs,
                                              const std::vector<RankDevice>& devices,
                                              const RunShape& shape, const RunPlan& plan,
                                              std::shared_ptr<const WeightsFile> weights,
                                              Reporter& reporter) {
  if (plan.memory.mapped_bytes == 0) weights = nullptr;
  Backend& first = *devices.front().backend;
  const TimingReports timing(first, plan, reporter);
  const bool is_alone = devices.size() == 1 && (first.communicator() == nullptr ||
                                                first.communicator()->peers() == nullptr);
  if (is_alone) {
    return std::make_unique<Session>(std::move(programs.front()), first, shape.micro_batches,
                                     Rank(), std::move(weights));
  }
  return std::make_unique<ReplicatedSession>(std::move(programs), devices, shape.micro_batches,
                                             StepLimits(), weights);
}

/// Processes that train one job together must start from the same state of the same job, so each
/// compares its own with that of the first process. ABORTED/RANKS_DIFFER.
Status check_same_start(const Start& start, TrainingSession& session) {
  std::string mine = "job " + start.identity.record().digest + " from ";
  if (start.checkpoint.has_value()) {
    const CheckpointState& state = start.checkpoint->state;
    mine += "a checkpoint of step " + std::to_string(state.step) + " (" +
            sha256_hex(state.extra_json).substr(0, 16) + ")";
  } else {
    mine += "its beginning";
  }
  const std::string of_first = session.of_first(mine);
  if (of_first == mine) return {};
  return make_error(ErrorCode::kAborted, "RANKS_DIFFER",
                    "this process would train " + mine + ", rank 0 " + of_first +
                        ": all ranks need the same job, dataset and checkpoint");
}

/// Services and signals from outside a run.
struct RunServices {
  Files& files;
  Reporter& reporter;
  const std::stop_token& stop;
  const Clock& clock;
};

Status write_run(const TrainJob& job, Files& files, ModelInfo info, const Loop& loop) {
  if (Status s = check_parent_exists(job.model_output); !s.ok()) return s;
  if (const BestState& best = loop.state().best; best.weights != nullptr) {
    info.best_metric = job.recipe.keep_best.metric;
    info.best_value = best.value;
    info.best_step = best.step;
  }
  if (job.recipe.lora.rank == 0) {
    std::vector<TensorView> weights = loop.model().weights;
    std::vector<std::vector<std::byte>> widened(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = {weights[i].name, weights[i].type, typed_bytes(weights[i], widened[i])};
    }
    return write_model(files, job.model_output, info, weights);
  }
  const LoraModel model = split_lora(job.model, job.recipe, loop.model().weights);
  return write_model(files, job.model_output, info, model.weights, &model);
}

/// Returns a warning if validation rows are copies of training rows. Data with more than 1 GiB of
/// features is not checked, since reading it would delay the start.
std::optional<std::string> find_validation_copies(const OpenJob& open, const Split& split) {
  constexpr int64_t kBytesMax = int64_t{1} << 30;
  const DatasetSchema& schema = open.data.schema();
  const TargetForm target = open.shape.objective.interface.target;
  if (split.validation.empty() ||
      (target != TargetForm::kClass && target != TargetForm::kNumeric) ||
      feature_bytes(schema) > kBytesMax / open.data.train().rows) {
    return std::nullopt;
  }
  const Partition& train = open.data.train();
  const RowCopies copies = count_copies(schema, train, split.train, train, split.validation);
  if (!copies.matter()) return std::nullopt;
  return std::to_string(copies.copies) + " of " + std::to_string(copies.rows) +
         " validation rows equal a training row, target included: validation metrics are too "
         "optimistic. If they are copies, remove them from the file.";
}

/// Returns a warning if documents are cut before the first token that counts, so that nothing is
/// learned from them.
std::optional<std::string> find_uncounted_documents(const OpenJob& open, const Split& split) {
  if (!split.packed) return std::nullopt;
  const Partition& train = open.data.train();
  int64_t uncounted = 0, documents = 0;
  for (const int64_t row : split.train) {
    for (const int64_t document : split.packed->documents_of(row)) {
      const auto at = static_cast<size_t>(document);
      const int64_t length = train.starts[at + 1] - train.starts[at];
      const auto counted =
          train.counted.subspan(static_cast<size_t>(train.starts[at]), static_cast<size_t>(length));
      const auto seen =
          counted.first(static_cast<size_t>(std::min(length, split.packed->context_length)));
      ++documents;
      // Documents without any counted token have a warning of their dataset.
      if (std::ranges::find(counted, 1) != counted.end() &&
          std::ranges::find(seen, 1) == seen.end()) {
        ++uncounted;
      }
    }
  }
  if (uncounted == 0) return std::nullopt;
  return std::to_string(uncounted) + " of " + std::to_string(documents) +
         " documents are cut before their first answer, so that nothing is learned from them: " +
         "their prompts alone are longer than recipe.context_length " +
         std::to_string(split.packed->context_length) + ". Use a larger one, or remove them.";
}

/// Returns the warnings that the plan could not give.
std::vector<std::string> warnings_at_start(const OpenJob& open, const Split& split,
                                           const std::optional<InitialWeightsReport>& weights) {
  std::vector<std::string> warnings;
  if (weights) warnings.push_back(pixel_warning(*weights, open.job.recipe, open.data.schema()));
  warnings.push_back(find_validation_copies(open, split).value_or(""));
  warnings.push_back(find_uncounted_documents(open, split).value_or(""));
  std::erase(warnings, "");
  const DatasetSchema& schema = open.data.schema();
  if (splits_by_class(schema, open.job.recipe.split_rule())) return warnings;  // the plan counted
  const auto rare =
      find_rare_classes(schema, count_classes(schema, open.data.train(), split.train));
  if (rare) warnings.push_back(rare->message);
  return warnings;
}

/// Loads weights, runs the loop and writes the model. `plan` must be complete except for values
/// that only the session knows.
Result<TrainResult> run(const OpenJob& open, Start start, RunPlan plan, TrainingSession& session,
                        const Backend& backend, const RunServices& around) {
  const TrainJob& job = open.job;
  Reporter& reporter = around.reporter;
  const DatasetSchema& schema = open.data.schema();
  const RunShape& shape = open.shape;
  if (const std::string lacks = backend.warning(); !lacks.empty()) reporter.log(lacks);
  AlgorithmRecord algorithms;
  if (Algorithms* const chosen = backend.algorithms(); chosen != nullptr) {
    algorithms = chosen->used();
    for (const std::string& message : chosen->take_messages()) reporter.log(message);
  }

  const Split& split = open.split;
  const Preprocessing preprocessing = fit_preprocessing(schema, open.data.train(), split.train,
                                                        preprocessing_options(job.recipe, shape));

  plan.memory.workspace_bytes = session.workspace_bytes();
  const BatchInputs rows{job.recipe, shape, open.data, preprocessing, split};
  const BatchSource batches =
      job.allows_resident_rows ? BatchSource::on_device(rows, backend, session) : BatchSource(rows);
  if (batches.kind() == BatchSource::Kind::kResident) {
    reporter.log("the training data is on the device: " + human_bytes(plan.dataset_bytes));
  } else if (batches.kind() == BatchSource::Kind::kHost) {
    plan.dataset_bytes = 0;
  }
  if (Status s = check_same_start(start, session); !s.ok()) return std::move(s).error();
  LoopState first;
  if (start.checkpoint.has_value()) {
    ASSIGN_OR_RETURN(first,
                     resume(*start.checkpoint, job, backend.name(), algorithms, session, reporter));
    start.checkpoint.reset();
  } else {
    ASSIGN_OR_RETURN(plan.initial_weights, begin(job, session, reporter));
  }
  plan.first_step = first.step;
  reporter.started(plan);
  std::vector<std::string> warnings = warnings_at_start(open, split, plan.initial_weights);
  for (const std::string& warning : warnings) reporter.warn(warning);

  const LoopContext context{job,
                            open.data,
                            shape,
                            preprocessing,
                            split,
                            start.identity.record(),
                            backend.name(),
                            batches,
                            algorithms,
                            plan.checkpoints.size_bytes,
                            around.clock};
  session.wait_after_nodes(job.names_faults);
  Loop loop(context, session, around.files, reporter, std::move(first));
  if (Status s = loop.run(around.stop); !s.ok()) return std::move(s).error();

  DatasetSchema model_schema = schema;
  model_schema.warnings.clear();  // those concern the dataset, not the model
  model_schema.split = {};
  const ModelInfo info{
      job.model,         std::move(model_schema), preprocessing,        loop.final_metrics(),
      loop.state().step, plan.parameter_count,    job.recipe.precision, loop.confusion()};
  if (session.is_first()) {
    if (Status s = write_run(job, around.files, info, loop); !s.ok()) return std::move(s).error();
  }
  warnings.insert(warnings.end(), loop.warnings().begin(), loop.warnings().end());
  return TrainResult{loop.state().step,
                     loop.final_metrics(),
                     loop.confusion(),
                     schema.target.classes,
                     loop.baselines(),
                     std::move(warnings),
                     session.arena_planned_bytes(),
                     session.arena_used_bytes(),
                     loop.times()};
}

/// Trains with parameters that are read in the mapped file, if `maps`.
Result<TrainResult> train_with(bool maps, const TrainJob& job,
                               const std::vector<RankDevice>& devices, const RunServices& around) {
  Reporter& reporter = around.reporter;
  const Backend& first = *devices.front().backend;
  Communicator* const connection = devices.front().backend->communicator();
  Peers* const peers = connection == nullptr ? nullptr : connection->peers();
  TrainJob ranked = job;
  std::shared_ptr<const WeightsFile> weights = name_weights(ranked, maps);
  ranked.ranks = peers == nullptr ? std::ssize(devices) : peers->ranks();
  const int64_t first_rank = peers == nullptr ? 0 : peers->first_rank();
  ASSIGN_OR_RETURN(const OpenJob open, open_job(ranked, first));
  std::vector<RunPrograms> programs;
  for (const RankDevice& device : devices) {
    ASSIGN_OR_RETURN(RunPrograms compiled,
                     compile_rank(open, first_rank + std::ssize(programs), *device.backend));
    programs.push_back(std::move(compiled));
  }
  RunPlan plan = describe_run(programs.front(), open.shape, job.recipe);
  plan.warnings = run_warnings(plan, job.recipe, open.data.schema());
  ASSIGN_OR_RETURN(Start start, find_start(ranked, first, reporter));
  if (const std::string& decay = programs.front().weight_decay; !decay.empty()) reporter.log(decay);
  const std::unique_ptr<TrainingSession> session =
      open_session(std::move(programs), devices, open.shape, plan, std::move(weights), reporter);
  if (peers != nullptr) {
    const std::string by = describe_connection(*peers, *connection);
    if (!by.empty()) reporter.log("connected by " + by);
  }
  return run(open, std::move(start), plan, *session, first, around);
}

}  // namespace

Result<TrainResult> train(const TrainJob& job, const std::vector<RankDevice>& devices, Files& files,
                          Reporter& reporter, std::stop_token stop, const Clock& clock) {
  const RunServices around{files, reporter, stop, clock};
  Result<TrainResult> result = train_with(/*maps=*/true, job, devices, around);
  if (result.ok() || result.error().reason != kMappedFileChanged) return result;
  reporter.log("another file has taken the place of the initial weights; the checkpoint has them");
  return train_with(/*maps=*/false, job, devices, around);
}

Result<TrainResult> train(const TrainJob& job, Backend& backend, Files& files, Reporter& reporter,
                          std::stop_token stop, const Clock& clock) {
  const std::shared_ptr<Backend> borrowed(std::shared_ptr<Backend>(), &backend);
  return train(job, {RankDevice{"", borrowed}}, files, reporter, std::move(stop), clock);
}

}  // namespace trainyard
