// src/train/loop.h: the step loop. Everything it needs has been checked and allocated before.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/result.h"
#include "src/data/load/loader.h"
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

/// What a run reads and never changes.
struct LoopContext {
  const TrainJob& job;
  const Dataset& data;
  const RunShape& shape;
  const Preprocessing& preprocessing;
  const Split& split;
  const RunRecord& run;
  std::string_view backend;
  const BatchSource& batches;
  const AlgorithmRecord& algorithms;  // of the session's kernels
  int64_t checkpoint_bytes;           // as planned
  const Clock& clock;                 // of checkpoints
};

class Loop {
 public:
  Loop(const LoopContext& context, TrainingSession& session, Files& files, Reporter& reporter,
       LoopState state);
  /// Waits for the checkpoint under way and reports it, whatever ended the run.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Steps until the end, a stop or a loss that is not finite. Step numbers count finished steps:
  /// the first step is step 1.
  Status run(const std::stop_token& stop);

  /// After run(): metrics of the last step, and of the model on the validation rows and the test
  /// set.
  const std::vector<MetricPoint>& final_metrics() const { return final_metrics_; }
  const LoopState& state() const { return state_; }
  /// The model: the last weights, their averages, or those of the best evaluation.
  const Snapshot& model() const { return model_; }
  /// [label][prediction] by "val" and "test", where the job reports them.
  const ConfusionMatrices& confusion() const { return confusion_; }
  /// As TrainResult's.
  const std::vector<MetricPoint>& baselines() const { return baselines_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  RunTimes times() const { return run_clock_.times(); }

 private:
  /// A step that the device has been given and that is not in `state_` yet.
  struct StepUnderWay {
    double learning_rate = 0;
    std::vector<int32_t> labels;  // where the accuracy is counted
  };
  /// As many as are submitted at once, up to a step behind which somebody looks at the weights;
  /// returns how many.
  int64_t begin_steps(Loader& loader);
  TrainingSession::StepInputs next_inputs(Loader& loader);
  /// Waits for the oldest step under way and reports it. FAILED_PRECONDITION/LOSS_NOT_FINITE.
  Status finish_step();
  /// Steps that have begun.
  int64_t steps_begun() const { return state_.step + std::ssize(under_way_); }
  /// True if something looks at the weights behind this step, whatever the time is.
  bool is_looked_at(int64_t step) const;
  bool is_evaluation_step(int64_t step) const;
  /// True if the recipe asks for the checkpoint of this step.
  bool is_checkpoint_step(int64_t step) const;
  /// True if the step that has begun last is to have a checkpoint, because of its number or by now.
  bool saves_now();
  /// The accuracy of a step. A batch of which no row counts leaves it as it was.
  void count_correct(std::span<const int32_t> labels, std::span<const float> logits);
  void report_step(double learning_rate, const TrainingSession::StepResult& result);
  void report_rates(const Loader& loader);
  Evaluation evaluate(const Partition& partition, std::span<const int64_t> rows,
                      RowsFrom from = RowsFrom::kHost);
  Evaluation evaluate_held_out();
  void evaluate_validation();
  /// Counts an evaluation: is it the best, and how long was there none better.
  void judge(const Evaluation& e);
  bool stops_early() const;
  void choose_model();
  /// Takes an evaluation of the model into the final metrics.
  void add_final(const std::string& prefix, const Evaluation& e, int64_t step);
  /// Compares it with an answer that does not look at the inputs.
  void add_baseline(const std::string& prefix, const Evaluation& e, const Partition& partition,
                    std::span<const int64_t> rows, int64_t step);
  void warn(std::optional<std::string> message);
  /// True if the evaluation behind this step was the best and its checkpoint stays.
  bool keeps_this() const;
  /// Begins to write one, behind the one under way. Refuses weights that are not finite; a failing
  /// disk is reported, and training continues.
  Status checkpoint();
  /// The same, and waits for it.
  Status checkpoint_and_wait();
  /// Waits for the checkpoint under way, if any, and reports it.
  void finish_write();
  /// Shows a sign of progress, and reports a checkpoint that is written by now.
  void progressed();
  /// Waits for the checkpoint under way, which the error names. `instead`: what else may help, in
  /// front of a lower learning rate.
  Error not_finite(const std::string& what, const std::string& instead = "");
  Status finish();

  const LoopContext& context_;
  TrainingSession& session_;
  Files& files_;
  Reporter& reporter_;
  MetricBuffer metrics_;
  LoopState state_;
  std::deque<StepUnderWay> under_way_;  // oldest first
  bool reads_scores_;                   // of each step, for its accuracy
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
  std::deque<double> last_losses_;
  std::optional<Baseline> baseline_;
  Evaluation validation_;
  int64_t validation_step_ = -1;
  ConfusionMatrices confusion_;
  Snapshot model_;
  CheckpointWriter writer_;
  CheckpointPace pace_;
  int64_t copy_us_ = 0;  // the training thread's part of the checkpoint under way
};

}  // namespace trainyard
