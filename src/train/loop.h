// src/train/loop.h: the step loop. Its inputs are checked and its memory is allocated beforehand.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/result.h"
#include "src/data/load/loader.h"
#include "src/data/load/split.h"
#include "src/job/checkpoint_pace.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/run_clock.h"
#include "src/job/train_job.h"
#include "src/planning/recipe_check.h"
#include "src/train/baseline.h"
#include "src/train/batch_source.h"
#include "src/train/checkpoint_writer.h"
#include "src/train/evaluate.h"
#include "src/train/metric_buffer.h"
#include "src/train/resume.h"
#include "src/train/training_session.h"

namespace trainyard {

/// The inputs of a run, which it does not change.
struct LoopContext {
  const TrainJob& job;
  const Dataset& data;
  const RunShape& shape;
  const Preprocessing& preprocessing;
  const Split& split;
  const RunRecord& run;
  std::string_view backend;
  const BatchSource& batches;
  const AlgorithmRecord& algorithms;  // those of the session's kernels
  int64_t checkpoint_bytes;           // planned size of a checkpoint
  const Clock& clock;                 // decides when checkpoints are due
};

class Loop {
 public:
  Loop(const LoopContext& context, TrainingSession& session, Files& files, Reporter& reporter,
       LoopState state);
  /// Waits for the checkpoint under way and reports it, also if the run failed.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Runs steps until the end, a stop or a loss that is not finite. Step numbers count finished
  /// steps: the first step is step 1.
  Status run(const std::stop_token& stop);

  /// Returns, after run(), the metrics of the last step, and those of the model on the validation
  /// rows and the test set.
  const std::vector<MetricPoint>& final_metrics() const { return final_metrics_; }
  const LoopState& state() const { return state_; }
  /// Returns the model: the last weights, their moving averages, or the weights of the best
  /// evaluation.
  const Snapshot& model() const { return model_; }
  /// Returns counts [label][prediction] by "val" and "test", if the job reports confusion matrices.
  const ConfusionMatrices& confusion() const { return confusion_; }
  /// See TrainResult.
  const std::vector<MetricPoint>& baselines() const { return baselines_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  RunTimes times() const { return run_clock_.times(); }

 private:
  /// A step that was submitted and is not yet counted in `state_`.
  struct StepUnderWay {
    double learning_rate = 0;
    std::vector<int32_t> labels;  // only if the accuracy is reported
  };
  /// Submits as many steps as go together, at most up to a step after which the weights are needed;
  /// returns their number.
  int64_t begin_steps(Loader& loader);
  TrainingSession::StepInputs next_inputs(Loader& loader);
  /// Waits for the oldest submitted step and reports it. FAILED_PRECONDITION/LOSS_NOT_FINITE.
  Status finish_step();
  /// Returns the number of steps submitted so far, finished or not.
  int64_t steps_begun() const { return state_.step + std::ssize(under_way_); }
  /// Returns whether the weights after this step are needed, for an evaluation, a checkpoint or the
  /// result. Checkpoints that are due by time are not considered.
  bool needs_weights(int64_t step) const;
  bool is_evaluation_step(int64_t step) const;
  /// Returns whether the recipe requests a checkpoint after this step.
  bool is_checkpoint_step(int64_t step) const;
  /// Returns whether a checkpoint is due after the last submitted step, because of its number or
  /// the time.
  bool saves_now();
  /// Computes the accuracy of a step. If no row of the batch counts, the previous value stays.
  void count_correct(std::span<const int32_t> labels, std::span<const float> logits);
  void report_step(double learning_rate, const TrainingSession::StepResult& result);
  void report_rates(const Loader& loader);
  Evaluation evaluate(const Partition& partition, std::span<const int64_t> rows,
                      RowsFrom from = RowsFrom::kHost);
  Evaluation evaluate_held_out();
  void evaluate_validation();
  /// Updates the best evaluation and the number of evaluations since the last improvement.
  void judge(const Evaluation& e);
  /// Warns of metrics that the evaluated rows leave undefined, once for each prefix.
  void warn_undefined(const std::string& prefix, const Evaluation& e, const Partition& partition,
                      std::span<const int64_t> rows);
  /// Returns what keep_best and early_stopping do by a metric that is never defined, such as ";
  /// ..."; empty if they use another.
  std::string uses_of(const std::string& metric) const;
  bool stops_early() const;
  void choose_model();
  /// Adds an evaluation of the model to the final metrics.
  void add_final(const std::string& prefix, const Evaluation& e, int64_t step);
  /// Compares an evaluation with a constant prediction (src/train/baseline.h).
  void add_baseline(const std::string& prefix, const Evaluation& e, const Partition& partition,
                    std::span<const int64_t> rows, int64_t step);
  void warn(std::optional<std::string> message);
  /// Returns whether this step's evaluation was the best so far and its checkpoint must be kept.
  bool keeps_this() const;
  /// Starts to write a checkpoint, after waiting for the one under way. Returns an error if weights
  /// are not finite. A failing disk is reported, and training continues.
  Status checkpoint();
  /// Like checkpoint(), but waits until the checkpoint is written.
  Status checkpoint_and_wait();
  /// Waits for the checkpoint under way, if any, and reports it.
  void finish_write();
  /// Reports progress, and a checkpoint whose write has finished.
  void progressed();
  /// Waits for the checkpoint under way, since the error names the newest one. `instead`: other
  /// advice, inserted before the advice of a lower learning rate.
  Error not_finite(const std::string& what, const std::string& instead = "");
  Status finish();

  const LoopContext& context_;
  TrainingSession& session_;
  Files& files_;
  Reporter& reporter_;
  MetricBuffer metrics_;
  LoopState state_;
  std::deque<StepUnderWay> under_way_;  // oldest first
  bool reads_scores_;                   // reads each step's scores, for its accuracy
  int64_t saved_step_ = -1;             // step of the newest durable checkpoint of this run
  double reported_learning_rate_ = -1;
  std::optional<float> reported_loss_scale_;
  MetricBuffer::Clock::time_point rate_time_;
  int64_t rate_step_ = 0;
  double rate_wait_ = 0;
  RunClock run_clock_;
  std::optional<Evaluator> evaluator_;
  std::vector<MetricPoint> final_metrics_, baselines_;
  std::vector<std::string> warnings_;
  std::set<std::string> undefined_;  // the metrics whose lack of a value was reported
  std::deque<double> last_losses_;
  std::optional<Baseline> baseline_;
  Evaluation validation_;
  int64_t validation_step_ = -1;
  ConfusionMatrices confusion_;
  Snapshot model_;
  CheckpointWriter writer_;
  CheckpointPace pace_;
  int64_t copy_us_ = 0;  // time of the training thread for the checkpoint under way
};

}  // namespace trainyard
