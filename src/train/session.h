// src/train/session.h: a job's programs on a device: one arena, weights in and out, one step at a
// time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/runtime/executor.h"
#include "src/train/evaluate.h"
#include "src/train/programs.h"

namespace trainyard {

/// Host copy of everything that a checkpoint holds. The views point into `storage`.
struct Snapshot {
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorView> weights;    // parameters and state, in the graph's order
  std::vector<TensorView> optimizer;  // optimizer state
};

/// In optimizer.safetensors: what the loop keeps there beside the optimizer's state.
inline constexpr std::string_view kKeptPrefix = "best/";

/// FAILED_PRECONDITION/MODEL_OP_UNSUPPORTED naming each op of the programs for which the backend
/// has no kernel.
Status check_kernels(const RunPrograms& programs, const Backend& backend);

/// Bytes that the kernels of the programs ask for besides the plan's: known once they are prepared,
/// by this backend with its threads, and then exact. Allocates nothing on the device.
int64_t measure_workspace(RunPrograms programs, Backend& backend);

/// Not thread-safe. After construction nothing is allocated on the device.
class Session final : public BatchModel {
 public:
  /// `micro_batches`: how many of them are one step.
  Session(RunPrograms programs, Backend& backend, int64_t micro_batches = 1);

  void initialise(uint64_t seed);
  /// Takes parameters, state and optimizer state from files; every tensor must be there with its
  /// type, and nothing else may be. DATA_LOSS/CHECKPOINT_MISMATCH otherwise, and the session is
  /// then not to be used.
  /// Tensors of `optimizer` whose names begin with kKeptPrefix are the loop's and are left alone.
  Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer);
  Snapshot snapshot() const;

  /// What is evaluated and becomes the model: weights alone, parameters by their moving averages
  /// where there are some.
  Snapshot evaluated_weights() const;
  /// Puts weights back where evaluated_weights() found them. Training from here on is undefined.
  void set_evaluated_weights(const Snapshot& weights);

  /// Parameters and state, for weights from elsewhere.
  std::vector<TensorInfo> weight_tensors() const;
  /// `name` is one of weight_tensors(), `bytes` of its size.
  void write_weight(std::string_view name, std::span<const std::byte> bytes);

  struct StepInputs {
    std::span<const std::byte> input;
    std::span<const std::byte> target;
    int64_t step = 0;  // 0-based
    float learning_rate = 0;
  };
  struct StepResult {
    float loss = 0;  // the mean over the micro-batches
    /// The step's output [N, K], by row of the batch, until the next finish_step(); empty for a
    /// model of tokens or of its input: those are too many numbers to read at every step.
    std::span<const float> logits;
    /// The global norm of the step's gradients, before clipping, if the job looks at it.
    std::optional<float> gradient_norm;
    /// With loss scaling: the scale of the step's gradients, and whether they were not finite, so
    /// that the step changed no weight.
    std::optional<float> loss_scale;
    bool skipped = false;
  };
  /// One optimizer step, of all micro-batches.
  StepResult run_step(const StepInputs& inputs) {
    begin_step(inputs);
    return finish_step();
  }
  /// The same in two parts. Up to kStepsAhead more steps may begin before the oldest that has not
  /// been finished is, so that a device that runs ahead never waits for its results to be looked
  /// at. `inputs` are free when begin_step() returns.
  static constexpr int64_t kStepsAhead = 1;
  void begin_step(const StepInputs& inputs);
  StepResult finish_step();
  /// Whether beginning a step early gains anything.
  bool runs_ahead() const { return backend_.runs_ahead(); }

  // By the evaluation program.
  void evaluate(std::span<const std::byte> input) override;
  std::span<const float> evaluation_output(int64_t row) override;
  int64_t evaluation_batch() const override { return evaluation_batch_; }

  int64_t arena_planned_bytes() const { return arena_->size_bytes(); }
  int64_t arena_used_bytes() const;
  int64_t workspace_bytes() const { return arena_->workspace_bytes(); }

 private:
  /// A tensor that a checkpoint holds, and a program that can reach it.
  struct Saved {
    Executor* executor;
    TensorId id;
    const TensorInfo& info() const { return executor->program().graph.tensor(id); }
    bool is_weight() const {
      return info().role == Role::kParameter || info().role == Role::kState;
    }
  };

  const Graph& graph() const { return train_->program().graph; }
  const BoundProgram& update_ids() const { return update_.has_value() ? update_ids_ : train_ids_; }
  bool scales_loss() const { return update_ids().scaled.scale != kNoTensor; }
  bool has_gradient_norm() const { return update_ids().gradient_norm != kNoTensor; }
  Executor& updater() { return update_.has_value() ? *update_ : *train_; }
  void find_saved();
  /// Where a weight is evaluated.
  const Saved& evaluated(const Saved& weight) const;
  void begin_micro_batch(const StepInputs& inputs, int64_t index, std::byte* results);
  /// Where a step's results go until they are looked at.
  void make_results();

  /// A step's results as they come from the device: of each micro-batch the loss and the output,
  /// behind them the gradient norm and what loss scaling made of the step.
  struct Results {
    HostBuffer memory;
    int64_t mark = 0;
  };

  Backend& backend_;
  // Ids only; the programs live in the executors.
  BoundProgram train_ids_, update_ids_, average_ids_, evaluate_ids_;
  std::optional<Arena> arena_;
  std::optional<Executor> train_, update_, average_, evaluate_;
  std::vector<Saved> saved_;  // weights and optimizer state, in the order of the programs
  std::map<std::string, size_t, std::less<>> saved_by_name_;
  int64_t micro_batches_ = 1;
  int64_t evaluation_batch_ = 0;
  std::vector<std::unique_ptr<Results>> results_;  // of steps that may be under way at a time
  // In a result: padded, so that all are aligned.
  int64_t output_at_ = 0, micro_batch_bytes_ = 0, norm_at_ = 0, scale_at_ = 0, rate_at_ = 0;
  int64_t steps_begun_ = 0, steps_finished_ = 0;
  std::vector<float> logits_;
  std::vector<float> evaluation_output_;  // of rows from evaluation_first_ on
  int64_t evaluation_row_elements_ = 0, evaluation_first_ = 0;
};

}  // namespace trainyard
