// src/train/training_session.h: the interface through which the loop trains: a job's programs on
// one device (session.h) or on several (replicated_session.h).
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
#include "src/train/resident_dataset.h"
#include "src/train/staged_rows.h"

namespace trainyard {

/// Host copy of all tensors of a checkpoint. The views point into `storage`, or for parameters that
/// are not trained into the session's memory or mapped file.
struct Snapshot {
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorView> weights;    // parameters and state, in the graph's order
  std::vector<TensorView> optimizer;  // optimizer state
};

/// Prefix of tensors that the loop stores in optimizer.safetensors in addition to the optimizer's
/// state.
inline constexpr std::string_view kKeptPrefix = "best/";

/// The reason of load()'s error if mapped parameters differ from those of the checkpoint. The job
/// can continue without mapped parameters.
inline constexpr std::string_view kMappedFileChanged = "MAPPED_FILE_CHANGED";

/// Not thread-safe.
class TrainingSession : public BatchModel {
 public:
  virtual void initialize(uint64_t seed) = 0;
  /// Loads parameters, state and optimizer state from files; every tensor must be present with its
  /// type, and no others. Otherwise DATA_LOSS/CHECKPOINT_MISMATCH or kMappedFileChanged, and the
  /// session must not be used. Ignores tensors of `optimizer` whose names begin with kKeptPrefix,
  /// since they belong to the loop.
  virtual Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) = 0;
  /// With several processes, the first returns the complete snapshot; the others fill in only the
  /// tensors and shards that they store.
  virtual Snapshot snapshot() const = 0;
  /// Called before a snapshot, after `step` steps: throws RanksDiffer (replicated_session.h) if
  /// devices no longer store the same weights.
  virtual void check_replicas(int64_t /*step*/) {}

  /// Returns the weights that are evaluated and become the model: the moving averages of the
  /// parameters, if there are any, else the parameters.
  virtual Snapshot evaluated_weights() const = 0;
  /// Writes weights to where evaluated_weights() reads them. Training afterwards is undefined.
  virtual void set_evaluated_weights(const Snapshot& weights) = 0;

  /// Returns the parameters and state, as targets for initial weights from another model.
  virtual std::vector<TensorInfo> weight_tensors() const = 0;
  /// `name` must be one of weight_tensors(), and `bytes` must have its size. Mapped parameters
  /// keep the values of their file.
  virtual void write_weight(std::string_view name, std::span<const std::byte> bytes) = 0;
  /// Writes elements of the weight from `first` on, as many as `bytes` has.
  virtual void write_weight_part(std::string_view name, int64_t first,
                                 std::span<const std::byte> bytes) = 0;

  /// Copies the training rows to each device, which must support Backend::supports_resident_rows().
  /// May be called once, before the first step. Afterwards steps are given by their samples, and
  /// evaluate_resident() may be called if the plan has evaluation_rows.
  virtual void make_resident(const ResidentSource& source) = 0;
  /// Replaces make_resident() for larger datasets: steps are given by their samples and the
  /// samples' rows.
  virtual void stage_rows(const StagedSource& source) = 0;

  struct StepInputs {
    std::span<const std::byte> input;  // input of the whole batch
    std::span<const std::byte> target;
    int64_t step = 0;  // counted from 0
    float learning_rate = 0;
    // Used instead of `input` and `target` after make_resident() or stage_rows(); also for the
    // whole batch.
    std::span<const kernels::ResidentSample> samples = {};
    std::span<const std::byte> stored = {};  // rows of the samples, after stage_rows()
    // Only of rows of documents: the tokens' places, and the weight of each part's loss, one for
    // each micro-batch and rank, or for each micro-batch (Batch::loss_shares).
    std::span<const std::byte> positions = {};
    std::span<const float> loss_shares = {};
  };
  struct StepResult {
    // The mean over the micro-batches and the ranks; of documents, over all counted tokens.
    float loss = 0;
    /// The step's output [N, K], by row of the batch, valid until the next finish_step(). Empty for
    /// a language model or an autoencoder: reading their outputs at every step would take too long.
    std::span<const float> logits;
    /// The global norm of the step's gradients before clipping, if the job uses it.
    std::optional<float> gradient_norm;
    /// With loss scaling: the scale of the step's gradients. `skipped` is true if the gradients
    /// were not finite, so that the step changed no weight.
    std::optional<float> loss_scale;
    bool skipped = false;
  };
  /// Runs one optimizer step over all its micro-batches.
  StepResult run_step(const StepInputs& inputs) {
    begin_step(inputs);
    return finish_step();
  }
  static constexpr int64_t kSubmittedAhead = 1;
  /// These run a step in two parts. The next begin_steps() may be called before the steps of the
  /// previous call are finished, so that a device that runs ahead does not wait while its results
  /// are processed. `inputs` may be reused when begin_step() returns.
  void begin_step(const StepInputs& inputs) {
    begin_steps(1, [&] { return inputs; });
  }
  /// Begins `count` consecutive steps, where `count` is a result of together(): same bits, less
  /// time. Each step is finished separately. next() returns the inputs of one step after the other;
  /// they may be reused when it is called again and after the last step.
  virtual void begin_steps(int64_t count, const std::function<StepInputs()>& next) = 0;
  /// Returns how many of the next `most` steps to begin together.
  virtual int64_t together(int64_t most) const = 0;
  virtual StepResult finish_step() = 0;
  /// Returns whether it is useful to begin a step before the previous one is finished.
  virtual bool runs_ahead() const = 0;
  /// Sets whether later steps wait after each node (Executor::wait_after_nodes()).
  virtual void wait_after_nodes(bool waits) = 0;

  // For a job that several processes train together (src/runtime/peers.h): information that only
  // one of them has, such as the time or a received signal, becomes the same result in all. All
  // processes must call these functions in the same order. The first process reports, and writes
  // checkpoints and the model.
  virtual bool is_first() const { return true; }
  /// Returns whether `here` is true in any process.
  virtual bool any(bool here) { return here; }
  /// Returns the text of the first process; at most Peers::kTextBytesMax bytes of it.
  virtual std::string of_first(std::string text) { return text; }
  bool of_first(bool here) { return !of_first(std::string(here ? "1" : "")).empty(); }

  // Sizes on one device.
  virtual int64_t arena_planned_bytes() const = 0;
  virtual int64_t arena_used_bytes() const = 0;
  virtual int64_t workspace_bytes() const = 0;
};

}  // namespace trainyard
