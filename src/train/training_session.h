// src/train/training_session.h: what the loop trains: a job's programs on one device (session.h) or
// on several (replicated_session.h). The loop does not know which.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/graph/graph.h"
#include "src/train/evaluate.h"
#include "src/train/held_dataset.h"
#include "src/train/travelling_rows.h"

namespace trainyard {

/// Host copy of everything that a checkpoint holds. The views point into `storage`.
struct Snapshot {
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorView> weights;    // parameters and state, in the graph's order
  std::vector<TensorView> optimizer;  // optimizer state
};

/// In optimizer.safetensors: what the loop keeps there beside the optimizer's state.
inline constexpr std::string_view kKeptPrefix = "best/";

/// One thread at a time.
class TrainingSession : public BatchModel {
 public:
  virtual void initialize(uint64_t seed) = 0;
  /// Takes parameters, state and optimizer state from files; every tensor must be present with its
  /// type, and no others. Otherwise DATA_LOSS/CHECKPOINT_MISMATCH, and the session must not be
  /// used. Ignores tensors of `optimizer` whose names begin with kKeptPrefix, which belong to the
  /// loop.
  virtual Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) = 0;
  /// Of several processes the first has all of it; the others what they hold.
  virtual Snapshot snapshot() const = 0;
  /// Before a snapshot, behind `step` steps: throws RanksDiffer (replicated_session.h) if devices
  /// no longer hold the same weights.
  virtual void check_replicas(int64_t /*step*/) {}

  /// The weights that are evaluated and become the model: parameters by their moving averages, if
  /// any.
  virtual Snapshot evaluated_weights() const = 0;
  /// Puts weights back where evaluated_weights() found them. Training from here on is undefined.
  virtual void set_evaluated_weights(const Snapshot& weights) = 0;

  /// Parameters and state, for weights from elsewhere.
  virtual std::vector<TensorInfo> weight_tensors() const = 0;
  /// `name` is one of weight_tensors(), `bytes` of its size.
  virtual void write_weight(std::string_view name, std::span<const std::byte> bytes) = 0;

  /// Copies the training rows to each device: Backend::holds_rows(). Once, before the first step;
  /// steps are then given by their samples, and evaluate_held() may be called where the plan has
  /// evaluation_rows.
  virtual void hold(const HeldSource& source) = 0;
  /// Instead of hold(), for too many rows: steps are given by their samples and include their rows.
  virtual void travel(const TravelSource& source) = 0;

  struct StepInputs {
    std::span<const std::byte> input;  // of the whole batch
    std::span<const std::byte> target;
    int64_t step = 0;  // 0-based
    float learning_rate = 0;
    // Of the whole batch, instead of the first two, behind hold() and travel().
    std::span<const kernels::HeldSample> samples = {};
    std::span<const std::byte> stored = {};  // rows of the samples, behind travel()
  };
  struct StepResult {
    float loss = 0;  // the mean over the micro-batches, and over the ranks
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
  /// The same in two parts. One more call may begin steps before all of the call before it are
  /// finished, so that a device that runs ahead never waits for its results to be looked at.
  /// `inputs` are free when begin_step() returns.
  static constexpr int64_t kBegunAhead = 1;
  void begin_step(const StepInputs& inputs) {
    begin_steps(1, [&] { return inputs; });
  }
  /// Steps that follow one another, together(count) of them: the same bits in less time. Each is
  /// finished by itself. next() gives the inputs of one after another, free when it is called again
  /// and at the end.
  virtual void begin_steps(int64_t count, const std::function<StepInputs()>& next) = 0;
  /// How many of the next `most` steps to begin at once.
  virtual int64_t together(int64_t most) const = 0;
  virtual StepResult finish_step() = 0;
  /// Whether beginning a step early gains anything.
  virtual bool runs_ahead() const = 0;
  /// Whether steps from here on wait behind each node (Executor::wait_behind_nodes()).
  virtual void wait_behind_nodes(bool waits) = 0;

  // Of a job that several processes train together (src/runtime/peers.h): what one of them alone
  // can know, such as the time or that a signal came, becomes one answer of all. All of them ask,
  // in the same order. The first reports, and writes checkpoints and the model.
  virtual bool is_first() const { return true; }
  /// Whether it is so in any process.
  virtual bool any(bool here) { return here; }
  /// What the first process says; at most Peers::kTextBytesMax of it.
  virtual std::string of_first(std::string text) { return text; }
  bool of_first(bool here) { return !of_first(std::string(here ? "1" : "")).empty(); }

  // Of one device.
  virtual int64_t arena_planned_bytes() const = 0;
  virtual int64_t arena_used_bytes() const = 0;
  virtual int64_t workspace_bytes() const = 0;
};

}  // namespace trainyard
