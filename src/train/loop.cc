#include "src/train/loop.h"

#include <cmath>

#include "src/base/text.h"
#include "src/data/load/windows.h"
#include "src/job/confusion.h"
#include "src/job/metrics.h"
#include "src/planning/step_slots.h"
#include "src/train/evaluate.h"
#include "src/train/undefined_metrics.h"

namespace trainyard {

namespace {

// If gradients overflow even at a loss scale below this one, 2^32 times smaller than the first, no
// scale helps.
constexpr float kLossScaleMin = 0x1p-16f;

// Number of last steps whose mean loss is compared with the first loss.
constexpr size_t kLastLosses = 8;

// Returns whether `step` is a multiple of `interval`; false for an interval of 0.
bool is_multiple(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

}  // namespace

Loop::Loop(const LoopContext& context, TrainingSession& session, Files& files, Reporter& reporter,
           LoopState state)
    : context_(context),
      session_(session),
      files_(files),
      reporter_(reporter),
      metrics_(reporter),
      state_(std::move(state)),
      saved_step_(state_.step > 0 ? state_.step : -1),
      rate_time_(MetricBuffer::Clock::now()),
      rate_step_(state_.step),
      pace_(context.checkpoint_bytes, context.clock.steady_us()) {
  const Objective& objective = context.shape.objective;
  if (session.evaluation_batch() > 0) {
    evaluator_.emplace(session, context.data.schema(), context.preprocessing, objective,
                       evaluation_metrics(context.job.recipe, objective.interface));
  }
  reads_scores_ = objective.reads_scores();
}

Loop::~Loop() {
  try {
    finish_write();
  } catch (...) {  // another error already ends the run
  }
}

Status Loop::run(const std::stop_token& stop) {
  const RunShape& shape = context_.shape;
  if (state_.step < shape.steps_total && !stops_early()) {
    Loader loader = context_.batches.open(state_.step);
    run_clock_.begin();
    while (state_.step < shape.steps_total && !stops_early()) {
      if (session_.any(stop.stop_requested())) {
        while (!under_way_.empty()) {
          if (Status s = finish_step(); !s.ok()) return s;
        }
        if (Status s = checkpoint_and_wait(); !s.ok()) return s;
        return make_error(ErrorCode::kCancelled, "STOPPED",
                          "stopped after step " + std::to_string(state_.step) + " of " +
                              std::to_string(shape.steps_total));
      }
      const int64_t step_before = state_.step;
      const int64_t begun = begin_steps(loader);
      // The device continues with the steps just begun while the earlier ones are finished, unless
      // the weights after them are needed (for an evaluation or a checkpoint) or the device does
      // not run ahead.
      const bool saves = saves_now();
      const bool waits = !session_.runs_ahead() || saves || needs_weights(steps_begun());
      while (std::ssize(under_way_) > (waits ? 0 : begun)) {
        if (Status s = finish_step(); !s.ok()) return s;
      }
      const int64_t step = state_.step;
      run_clock_.steps_done(step - step_before);
      const bool reports = metrics_.due() || step == shape.steps_total;
      if (reports) {
        report_rates(loader);
        metrics_.flush();
        reporter_.times(run_clock_.times());
      }
      if (!under_way_.empty()) continue;
      const bool evaluates = is_evaluation_step(step);
      if (evaluates) {
        evaluate_validation();
        run_clock_.evaluation_done();
        // The next step may be slow, so metrics that were due before the evaluation are also
        // reported after it.
        if (reports || metrics_.due()) metrics_.flush();
      }
      if (saves || (evaluates && keeps_this())) {
        if (Status s = checkpoint(); !s.ok()) return s;
        run_clock_.checkpoint_done();
      }
    }
  }
  return finish();
}

bool Loop::needs_weights(int64_t step) const {
  return step == context_.shape.steps_total || is_evaluation_step(step) || is_checkpoint_step(step);
}

bool Loop::is_evaluation_step(int64_t step) const {
  const int64_t every = context_.job.recipe.evaluate_every_steps;
  return is_multiple(step, every > 0 ? every : context_.shape.steps_per_epoch);
}

bool Loop::is_checkpoint_step(int64_t step) const {
  const Recipe& recipe = context_.job.recipe;
  return is_multiple(step, recipe.checkpoint_every_steps > 0 ? recipe.checkpoint_every_steps
                                                             : recipe.keep_checkpoints_every_steps);
}

bool Loop::saves_now() {
  const int64_t step = steps_begun();
  if (is_checkpoint_step(step)) return true;
  // The last step's checkpoint is saved after its evaluation.
  if (context_.job.recipe.checkpoint_every_steps != 0 || step >= context_.shape.steps_total) {
    return false;
  }
  return session_.of_first(pace_.due(context_.clock.steady_us(), writer_.under_way()));
}

int64_t Loop::begin_steps(Loader& loader) {
  int64_t most = 1;
  while (most < kStepsTogetherMax && !needs_weights(steps_begun() + most)) ++most;
  const int64_t count = session_.together(most);
  session_.begin_steps(count, [&] { return next_inputs(loader); });
  return count;
}

TrainingSession::StepInputs Loop::next_inputs(Loader& loader) {
  const Recipe& recipe = context_.job.recipe;
  const int64_t step = steps_begun();
  const double rate = learning_rate_at(recipe.schedule, recipe.optimizer.learning_rate, step,
                                       context_.shape.steps_total);
  const Batch& batch = loader.next();
  under_way_.push_back({rate, reads_scores_ ? batch.target_class : std::vector<int32_t>()});
  return BatchSource::step_inputs(batch, step, rate);
}

Status Loop::finish_step() {
  const StepUnderWay step = std::move(under_way_.front());
  under_way_.pop_front();
  const TrainingSession::StepResult result = session_.finish_step();
  const auto loss = static_cast<double>(result.loss);
  if (!std::isfinite(loss)) {
    metrics_.add("train/loss", state_.step + 1,
                 loss);  // so that the value that ended the job is visible
    metrics_.flush();
    return not_finite("the loss of step " + std::to_string(state_.step + 1) + " is " +
                      short_number(loss));
  }
  if (result.skipped && *result.loss_scale < kLossScaleMin) {
    return not_finite("the gradients of step " + std::to_string(state_.step + 1) +
                          " are not finite in fp16, although the loss scale is only " +
                          short_number(static_cast<double>(*result.loss_scale)),
                      "recipe.precision: bf16 or tf32 or ");
  }
  ++state_.step;
  progressed();
  state_.train_loss = loss;
  if (state_.step == 1) state_.first_loss = loss;
  last_losses_.push_back(loss);
  if (last_losses_.size() > kLastLosses) last_losses_.pop_front();
  if (reads_scores_) count_correct(step.labels, result.logits);
  report_step(step.learning_rate, result);
  return {};
}

void Loop::count_correct(std::span<const int32_t> labels, std::span<const float> logits) {
  const Objective& objective = context_.shape.objective;
  const auto outputs = static_cast<size_t>(objective.interface.outputs);
  int64_t correct = 0, rows = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] == objective.ignored_label()) continue;
    const ClassScores scores(logits.subspan(i * outputs, outputs));
    correct += argmax(scores.get()) == labels[i] ? 1 : 0;
    ++rows;
  }
  if (rows > 0) state_.train_accuracy = static_cast<double>(correct) / static_cast<double>(rows);
}

void Loop::report_step(double learning_rate, const TrainingSession::StepResult& result) {
  metrics_.add("train/loss", state_.step, state_.train_loss);
  if (reads_scores_) metrics_.add("train/accuracy", state_.step, state_.train_accuracy);
  if (learning_rate != reported_learning_rate_) {  // constant rates are reported once
    metrics_.add("train/learning_rate", state_.step, learning_rate);
    reported_learning_rate_ = learning_rate;
  }
  if (result.gradient_norm.has_value()) {
    metrics_.add("train/gradient_norm", state_.step, static_cast<double>(*result.gradient_norm));
  }
  if (result.loss_scale.has_value() && result.loss_scale != reported_loss_scale_) {
    metrics_.add("train/loss_scale", state_.step, static_cast<double>(*result.loss_scale));
    reported_loss_scale_ = result.loss_scale;
  }
}

void Loop::report_rates(const Loader& loader) {
  const auto now = MetricBuffer::Clock::now();
  const double seconds = std::chrono::duration<double>(now - rate_time_).count();
  const int64_t steps = state_.step - rate_step_;
  const double wait = loader.wait_seconds();
  if (steps > 0 && seconds > 0) {
    const auto rows = static_cast<double>(steps * context_.job.recipe.batch_size);
    metrics_.add("train/samples_per_second", state_.step, rows / seconds);
    metrics_.add("train/data_wait_share", state_.step,
                 std::min(1.0, (wait - rate_wait_) / seconds));
  }
  rate_time_ = now;
  rate_step_ = state_.step;
  rate_wait_ = wait;
  run_clock_.set_data_wait(wait);
}

Evaluation Loop::evaluate(const Partition& partition, std::span<const int64_t> rows,
                          RowsFrom from) {
  return evaluator_->evaluate(
      partition, rows, [this] { progressed(); }, from);
}

Evaluation Loop::evaluate_held_out() {
  return evaluate(context_.data.train(), context_.split.validation, context_.batches.held_out());
}

void Loop::evaluate_validation() {
  if (context_.split.validation.empty() || validation_step_ == state_.step) return;
  const auto begin = MetricBuffer::Clock::now();
  validation_ = evaluate_held_out();
  validation_step_ = state_.step;
  for (const MetricPoint& m : to_metrics(validation_, "val", state_.step)) {
    metrics_.add(m.key, m.step, m.value);
  }
  warn_undefined("val", validation_, context_.data.train(), context_.split.validation);
  judge(validation_);
  rate_time_ +=
      MetricBuffer::Clock::now() - begin;  // evaluations do not count in the training rate
}

void Loop::judge(const Evaluation& e) {
  if (state_.step <= state_.evaluated_step)
    return;  // the run was resumed after this evaluation, which the state contains
  state_.evaluated_step = state_.step;
  const auto value_of = [&](const std::string& metric) {
    for (const auto& [name, value] : e.values) {
      if ("val/" + name == metric) return value;
    }
    TRAINYARD_CHECK(false, metric + " was not evaluated");
  };
  if (const KeepBest& keep = context_.job.recipe.keep_best; !keep.metric.empty()) {
    const double value = value_of(keep.metric);
    const bool less = minimizes(keep.metric, keep.mode);
    BestState& best = state_.best;
    const bool first = best.step == 0;
    if (std::isfinite(value) && (first || (less ? value < best.value : value > best.value))) {
      best = {value, state_.step, std::make_shared<const Snapshot>(session_.evaluated_weights())};
    }
  }
  if (const EarlyStopping& stop = context_.job.recipe.early_stopping; !stop.metric.empty()) {
    const double value = value_of(stop.metric);
    StoppingState& s = state_.stopping;
    const double gain = minimizes(stop.metric, stop.mode) ? s.best - value : value - s.best;
    // Any finite value is an improvement if there was none. A metric that has had no value yet
    // cannot have failed to improve.
    if (std::isfinite(value) && (!s.any || gain > stop.min_delta)) {
      s = {true, value, 0};
    } else if (s.any || !std::isnan(value)) {
      ++s.evaluations_since;
    }
  }
}

void Loop::warn_undefined(const std::string& prefix, const Evaluation& e,
                          const Partition& partition, std::span<const int64_t> rows) {
  const std::string advice =
      prefix == "val" ? "Hold out more rows (recipe.validation_split), or choose another metric."
                      : "The test set needs more rows.";
  for (const UndefinedMetric& m : find_undefined_metrics(e, context_.data.schema(), partition, rows,
                                                         context_.shape.objective)) {
    const std::string metric = prefix + "/" + m.name;
    if (!undefined_.insert(metric).second) continue;
    warn(metric + " is never defined in this job: " + m.why +
         (m.is_reported ? "" : uses_of(metric)) + ". " + advice);
  }
}

std::string Loop::uses_of(const std::string& metric) const {
  const Recipe& recipe = context_.job.recipe;
  std::string uses;
  if (recipe.keep_best.metric == metric) {
    uses += "; recipe.keep_best keeps nothing, and the model has the last step's weights";
  }
  if (recipe.early_stopping.metric == metric) {
    uses += "; recipe.early_stopping never ends the job";
  }
  return uses;
}

bool Loop::stops_early() const {
  const EarlyStopping& stop = context_.job.recipe.early_stopping;
  return !stop.metric.empty() && state_.stopping.evaluations_since >= stop.patience;
}

bool Loop::keeps_this() const {
  return context_.job.recipe.keep_best_checkpoint && state_.best.step == state_.step;
}

Status Loop::checkpoint() {
  finish_write();  // one write at a time; the previous one may be of this step
  if (session_.of_first(saved_step_ == state_.step)) return {};
  const int64_t begin_us = context_.clock.steady_us();
  metrics_.flush();  // a checkpoint is reported after all metrics up to its step
  session_.check_replicas(state_.step);
  Snapshot snapshot = session_.snapshot();
  // Checked here and not concurrently with the next steps: how far a failing run gets must not
  // depend on the disk's speed.
  if (const std::string bad = session_.of_first(find_not_finite(snapshot)); !bad.empty()) {
    return not_finite("after step " + std::to_string(state_.step) + " " + bad +
                      " has values that are not finite");
  }
  // Waiting after each node locates a fault of the previous attempt, which failed before this step.
  session_.wait_after_nodes(false);
  if (!session_.is_first()) return {};
  writer_.begin(state_.step, [this, state = state_, snapshot = std::move(snapshot)] {
    return save(files_, context_.job, context_.run, context_.backend, context_.algorithms, state,
                snapshot);
  });
  pace_.begin(begin_us);
  copy_us_ = context_.clock.steady_us() - begin_us;
  return {};
}

Status Loop::checkpoint_and_wait() {
  Status s = checkpoint();
  finish_write();
  return s;
}

void Loop::finish_write() {
  if (!writer_.under_way()) return;
  const CheckpointWriter::Written written = writer_.take();
  pace_.add_cost(copy_us_ + written.cpu_us);
  if (written.saved.ok()) {
    saved_step_ = written.step;
    reporter_.checkpoint_saved(written.step, *written.saved);
  } else {
    reporter_.checkpoint_failed(written.step, written.saved.error());
  }
}

void Loop::progressed() {
  reporter_.progressed();
  if (writer_.done()) finish_write();
}

Error Loop::not_finite(const std::string& what, const std::string& instead) {
  finish_write();
  Error e =
      make_error(ErrorCode::kFailedPrecondition, "LOSS_NOT_FINITE",
                 what + "; try " + instead + "a lower recipe.optimizer.learning_rate (currently " +
                     short_number(context_.job.recipe.optimizer.learning_rate) + ")");
  e.metadata["step"] = std::to_string(state_.step + 1);
  e.metadata["last_checkpoint_step"] = std::to_string(saved_step_);
  return e;
}

void Loop::choose_model() {
  if (stops_early()) {
    const EarlyStopping& stop = context_.job.recipe.early_stopping;
    reporter_.log("stopped early after step " + std::to_string(state_.step) + " of " +
                  std::to_string(context_.shape.steps_total) + ": " + stop.metric +
                  " has not improved on " + short_number(state_.stopping.best) + " for " +
                  std::to_string(state_.stopping.evaluations_since) + " evaluations");
  }
  if (state_.best.weights == nullptr) {
    model_ = session_.evaluated_weights();
    return;
  }
  reporter_.log("the model has the weights of step " + std::to_string(state_.best.step) +
                ", which had the best " + context_.job.recipe.keep_best.metric + ": " +
                short_number(state_.best.value));
  // Training has ended, so the best weights may replace the last ones.
  session_.set_evaluated_weights(*state_.best.weights);
  model_ = session_.evaluated_weights();
  validation_ = evaluate_held_out();
  validation_step_ = state_.best.step;
}

void Loop::add_final(const std::string& prefix, const Evaluation& e, int64_t step) {
  for (const MetricPoint& m : to_metrics(e, prefix, step)) final_metrics_.push_back(m);
  if (e.confusion.empty()) return;
  confusion_[prefix] = e.confusion;
  const std::vector<std::string>& classes = context_.data.schema().target.classes;
  reporter_.log(prefix +
                (classes.size() > kConfusionClassesShown
                     ? " confusions:"
                     : " confusion matrix, labels down and predictions across:") +
                confusion_text(e.confusion, classes));
}

void Loop::add_baseline(const std::string& prefix, const Evaluation& e, const Partition& partition,
                        std::span<const int64_t> rows, int64_t step) {
  const Objective& objective = context_.shape.objective;
  if (!baseline_) baseline_ = Baseline::of(objective, context_.data.train(), context_.split.train);
  if (!baseline_) return;
  const Evaluation without = baseline_->evaluate(
      partition, rows, context_.preprocessing,
      evaluation_metrics(context_.job.recipe, objective.interface), [this] { progressed(); });
  for (const MetricPoint& m : to_metrics(without, prefix, step)) baselines_.push_back(m);
  warn(baseline_->compare(prefix, e, without, context_.data.schema().target));
  warn(baseline_->check_perfection(prefix, e, without));
  warn(check_row_count(prefix, std::ssize(rows)));
}

void Loop::warn(std::optional<std::string> message) {
  if (!message) return;
  reporter_.warn(*message);
  warnings_.push_back(*std::move(message));
}

Status Loop::finish() {
  const int64_t step = state_.step;
  evaluate_validation();
  metrics_.flush();
  if (Status s = checkpoint_and_wait(); !s.ok()) return s;
  choose_model();
  final_metrics_ = {{"train/loss", step, state_.train_loss}};
  if (reads_scores_) final_metrics_.push_back({"train/accuracy", step, state_.train_accuracy});
  if (state_.first_loss) {
    warn(check_divergence(*state_.first_loss, {last_losses_.begin(), last_losses_.end()},
                          context_.job.recipe.optimizer.learning_rate));
  }
  if (validation_step_ >= 0) {
    add_final("val", validation_, validation_step_);
    add_baseline("val", validation_, context_.data.train(), context_.split.validation,
                 validation_step_);
  }
  if (context_.shape.test_rows > 0) {
    const std::vector<int64_t> rows =
        context_.data.schema().documents
            ? window_starts(0, context_.shape.test_rows, 1)
            : test_rows(context_.data.schema(), context_.shape.context_length);
    const Evaluation e = evaluate(context_.data.test(), rows);
    add_final("test", e, step);
    warn_undefined("test", e, context_.data.test(), rows);
    add_baseline("test", e, context_.data.test(), rows, step);
    for (const MetricPoint& m : to_metrics(e, "test", step)) {
      metrics_.add(m.key, m.step, m.value);
    }
  }
  metrics_.flush();
  return {};
}

}  // namespace trainyard
