// `trainyard local run`: trains a spec in this process, without a daemon, which is the shortest way
// to debug the engine. It reads the data, builds, trains and writes with the same engine calls as
// the worker.
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/job_file.h"
#include "client/cli/job_view.h"
#include "client/cli/local_spec.h"
#include "client/cli/options.h"
#include "client/cli/session.h"
#include "client/cli/temporary_folder.h"
#include "client/lib/tensorboard.h"
#include "client/local/devices.h"
#include "client/local/profile_view.h"
#include "client/local/work.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/calibration/step_profile.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/runtime/open_backend.h"
#include "src/train/trainer.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class ProgressReporter final : public Reporter {
 public:
  /// `curves` may be null.
  ProgressReporter(Progress& progress, int64_t batch_size, bool live,
                   client::TensorBoardFile* curves)
      : progress_(progress), batch_size_(batch_size), live_(live), curves_(curves) {}

  void started(const trainyard::RunPlan& plan) override {
    progress_.plan(plan.steps_total, plan.steps_per_epoch, batch_size_);
    progress_.begin(now_s(), plan.first_step);
    std::string text =
        grouped(plan.parameter_count) + " parameters, " + grouped(plan.train_rows) + " rows";
    if (plan.first_step > 0) text += ", resumed from step " + std::to_string(plan.first_step);
    progress_.note(now_s(), Style::kDim, text);
    if (plan.first_step > 0) return;  // the attempt from step 0 has shown the warnings
    for (const std::string& warning : plan.warnings) warn(warning);
  }
  void progressed() override {}  // progress is shown when metrics arrive
  void metrics(std::span<const MetricPoint> points) override {
    const double time_s = now_s();
    for (const MetricPoint& point : points) {
      progress_.metric(point.key, point.step, point.value);
      if (curves_ != nullptr) curves_->add(point.key, {point.step, point.value, time_s});
    }
    progress_.update(time_s);
    if (curves_ == nullptr) return;
    if (const Status s = curves_->flush(); !s.ok()) {  // training continues without the file
      progress_.note(time_s, Style::kNotice, s.error().message);
      curves_ = nullptr;
    }
  }
  void checkpoint_saved(int64_t step, const fs::path&) override {
    if (!live_) progress_.note(now_s(), Style::kDim, "checkpoint at step " + std::to_string(step));
  }
  void checkpoint_failed(int64_t step, const Error& error) override {
    progress_.note(now_s(), Style::kNotice,
                   "checkpoint at step " + std::to_string(step) + " failed: " + error.message);
  }
  void log(std::string_view message) override { progress_.note(now_s(), Style::kPlain, message); }
  void warn(std::string_view message) override {
    progress_.note(now_s(), Style::kNotice, "warning: " + std::string(message));
  }

 private:
  Progress& progress_;
  int64_t batch_size_;
  bool live_;
  client::TensorBoardFile* curves_;
};

void show_result(Session& session, const TrainResult& result, double seconds,
                 const std::string& model) {
  if (session.machine()) {
    nlohmann::ordered_json values = nlohmann::ordered_json::object();
    for (const MetricPoint& point : result.final_metrics) values[point.key] = point.value;
    nlohmann::ordered_json baselines = nlohmann::ordered_json::object();
    for (const MetricPoint& point : result.baselines) baselines[point.key] = point.value;
    const nlohmann::ordered_json object = {{"steps_done", result.steps_done},
                                           {"seconds", seconds},
                                           {"metrics", values},
                                           {"baselines", baselines},
                                           {"warnings", result.warnings},
                                           {"arena_planned_bytes", result.arena_planned_bytes},
                                           {"arena_used_bytes", result.arena_used_bytes},
                                           {"model", model}};
    session.out().line(object.dump());
    return;
  }
  std::vector<std::pair<std::string, double>> metrics;
  for (const MetricPoint& point : result.final_metrics)
    metrics.emplace_back(point.key, point.value);
  std::map<std::string, double> baselines;
  for (const MetricPoint& point : result.baselines) baselines[point.key] = point.value;
  session.out().write(render_metrics(metrics, baselines, session.out().colour()));
  session.out().line(grouped(result.steps_done) + " steps in " + human_duration(seconds) + ", " +
                     human_bytes(result.arena_used_bytes) + " of memory as planned");
  if (!model.empty()) session.out().line("model: " + model);
}

Result<int> run_profile(Session& session, const LocalRunOptions& options, const TrainJob& job,
                        Backend& backend) {
  ASSIGN_OR_RETURN(const StepProfile profile,
                   profile_job(job, backend, ProfileOptions(), session.interrupted()));
  if (!options.trace.empty()) {
    const std::string trace = chrome_trace(profile);
    if (Status s = replace_file(user_files(), options.trace, trace); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (session.machine()) {
    session.out().line(profile_json(profile, job.recipe.batch_size));
    return static_cast<int>(client::kExitOk);
  }
  ProfileViewOptions view;
  view.width = session.out().width();
  view.utf8 = session.out().utf8();
  view.colour = session.out().colour();
  session.out().write(render_profile(profile, job.recipe.batch_size, view));
  if (!options.trace.empty()) {
    session.hint("Open " + options.trace + " in https://ui.perfetto.dev or chrome://tracing.");
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Result<int> run_local_run(Session& session, const LocalRunOptions& options) {
  const bool profiles = options.profile || !options.trace.empty();
  if (profiles && (!options.out.empty() || !options.tensorboard.empty())) {
    return usage_error("--profile keeps no results; remove --out and --tensorboard");
  }
  TemporaryFolder temporary;
  ASSIGN_OR_RETURN(const client::SpecFile spec,
                   read_job_file(session, options.spec, options.sets, temporary));
  if (Status single = spec.check_single("local run"); !single.ok()) return single.error();
  if (spec.file.after_size() > 0) {
    return field_error("FIELD_UNSUPPORTED", "after",
                       "a local run does not wait for other jobs; remove it, or submit the spec");
  }
  if (spec.file.resources().has_time_limit_seconds()) {
    session.hint("resources.time_limit_seconds applies only on a server; this run has no limit.");
  }
  ASSIGN_OR_RETURN(const EngineSpec engine, local_engine(spec, "local run"));
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   pick_devices(spec.file.resources(), options.device));

  if (profiles && names.size() > 1) {
    return usage_error("--profile times a step on one device; expected a single one in --device");
  }

  TrainJob job;
  job.model = engine.model;
  job.recipe = engine.recipe;
  job.initial_weights = local_weights(spec, engine.recipe);
  ASSIGN_OR_RETURN(job.threads, pick_threads(spec.file.resources(), options.threads));
  ASSIGN_OR_RETURN(const fs::path algorithms, local_algorithms_folder());
  ASSIGN_OR_RETURN(const std::vector<RankDevice> devices,
                   open_devices(names, job.threads,
                                std::make_shared<Algorithms>(Algorithms::Options{algorithms})));

  const fs::path out = options.out.empty() ? temporary.path() / "out" : fs::path(options.out);
  job.dataset = temporary.path() / "dataset";
  job.checkpoints = out / "checkpoints";
  job.model_output = out / "model";
  for (const fs::path& folder : {out, job.checkpoints}) {
    if (Status made = local_files().create_directories(folder); !made.ok())
      return std::move(made).error();
  }
  ASSIGN_OR_RETURN(const DatasetSchema schema, read_local_data(spec, job.dataset));

  if (profiles) {
    auto done = run_profile(session, options, job, *devices.front().backend);
    if (done.ok()) return done;
    if (done.error().code == ErrorCode::kCancelled) {
      return static_cast<int>(client::kExitInterrupted);
    }
    return spec.with_positions(std::move(done).error());
  }

  const std::string title = spec.file.name().empty() ? "local" : spec.file.name();
  Progress progress = session.progress(title, session.err());
  std::optional<client::TensorBoardFile> curves;
  if (!options.tensorboard.empty()) {
    ASSIGN_OR_RETURN(curves,
                     client::TensorBoardFile::create(options.tensorboard, now_s(), "trainyard"));
  }
  ProgressReporter reporter(progress, job.recipe.batch_size, session.err().is_terminal(),
                            curves ? &*curves : nullptr);
  const double begin = now_s();
  auto result = train(job, devices, local_files(), reporter, session.interrupted());
  if (result.ok()) {
    std::map<std::string, double> metrics;
    for (const MetricPoint& point : result->final_metrics) metrics[point.key] = point.value;
    progress.succeed(metrics);
  }
  progress.finish();
  if (!result.ok()) {
    if (result.error().code == ErrorCode::kCancelled) {
      session.err().line(options.out.empty()
                             ? "Stopped; with --out, a second run would resume from here."
                             : "Stopped; the same command resumes from the last checkpoint.");
      return static_cast<int>(client::kExitInterrupted);
    }
    return spec.with_positions(std::move(result).error());
  }
  show_result(session, *result, now_s() - begin,
              options.out.empty() ? "" : job.model_output.string());
  return static_cast<int>(client::kExitOk);
}

}  // namespace trainyard::cli
