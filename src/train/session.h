// src/train/session.h: runs a job's programs on one device: owns their arena, reads and writes
// weights, and executes steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"
#include "src/planning/programs.h"
#include "src/runtime/executor.h"
#include "src/train/resident_steps.h"
#include "src/train/training_session.h"

namespace trainyard {

/// Returns OK if the backend has a kernel for every op of the programs, else
/// FAILED_PRECONDITION/MODEL_OP_UNSUPPORTED with the names of the ops without one.
Status check_kernels(const RunPrograms& programs, const Backend& backend);

/// Returns the bytes of workspace that the programs' kernels need in addition to the plan. The size
/// is exact, but depends on the backend and its threads, so the kernels must be prepared to compute
/// it. Allocates nothing on the device.
int64_t measure_workspace(RunPrograms programs, Backend& backend);

/// Allocates device memory only in the constructor, make_resident() and stage_rows().
class Session final : public TrainingSession {
 public:
  /// `micro_batches` is their number per step. `rank` selects the part of every batch that this
  /// session computes; the programs must be compiled for it. `mapped` is the file of initial
  /// weights, if the programs have mapped parameters. These are never written: they have their
  /// values from the beginning, and load() only compares them.
  Session(RunPrograms programs, Backend& backend, int64_t micro_batches = 1, Rank rank = {},
          std::shared_ptr<const WeightsFile> mapped = nullptr);

  void initialize(uint64_t seed) override;
  Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) override;
  Snapshot snapshot() const override { return snapshot(std::vector{this}); }
  /// Returns a snapshot of the sessions of all ranks, including this one: sharded tensors are
  /// joined from all of them.
  /// Parameters stored in 16 bits, which are not trained, are not copied if the host can read them
  /// in the arena: a snapshot must not outlive the session.
  Snapshot snapshot(const std::vector<const Session*>& ranks) const;
  /// The tensors in a snapshot (kAll) or in evaluated weights (kEvaluated).
  enum class Copied : uint8_t { kAll, kEvaluated };
  /// Returns where a rank's shards are in `snapshot`.
  std::vector<std::span<std::byte>> parts_of(Snapshot& snapshot, Rank rank, Copied copied) const;
  Snapshot evaluated_weights() const override { return evaluated_weights(std::vector{this}); }
  Snapshot evaluated_weights(const std::vector<const Session*>& ranks) const;
  void set_evaluated_weights(const Snapshot& weights) override;
  std::vector<TensorInfo> weight_tensors() const override;
  void write_weight(std::string_view name, std::span<const std::byte> bytes) override;
  void write_weight_part(std::string_view name, int64_t first,
                         std::span<const std::byte> bytes) override;
  /// Returns a checksum per tensor, by name, for the tensors that must be equal on all ranks: all
  /// except running statistics and shards.
  std::map<std::string, uint32_t> checksums() const;
  /// Copies the state that is neither trained nor the optimizer's, such as running statistics, from
  /// another session of the same job.
  void copy_state(const Session& from) { write_state(from.read_state()); }
  /// Returns this state, with all tensors concatenated.
  std::vector<std::byte> read_state() const;
  void write_state(std::span<const std::byte> values);

  void make_resident(const ResidentSource& source) override;
  void stage_rows(const StagedSource& source) override { staged_.emplace(backend_, source); }
  /// The inputs are those of the whole batch; the result is that of this rank's rows.
  void begin_steps(int64_t count, const std::function<StepInputs()>& next) override;
  int64_t together(int64_t most) const override;
  StepResult finish_step() override;
  bool runs_ahead() const override { return backend_.runs_ahead(); }
  void wait_after_nodes(bool waits) override;

  // The following functions use the evaluation program.
  void evaluate(std::span<const std::byte> input,
                std::span<const std::byte> positions = {}) override;
  void evaluate_resident(std::span<const kernels::ResidentSample> samples) override;
  std::span<const float> evaluation_output(int64_t row) override;
  int64_t evaluation_batch() const override { return evaluation_batch_; }
  /// If > 0, the head is split over the ranks and this is the number of all classes. Then an output
  /// has `output_columns()` columns, one per class of this rank, and the rows of all ranks; the
  /// last ranks may have fewer classes than columns.
  int64_t split_classes() const { return train_ids_.split_classes; }
  int64_t output_columns() const;
  /// These return the number of elements per row of an evaluation's output, and the number of rows
  /// that one read returns.
  int64_t evaluation_row_elements() const { return evaluation_row_elements_; }
  int64_t evaluation_rows_read() const {
    return std::ssize(evaluation_output_) / std::max<int64_t>(1, evaluation_row_elements_);
  }

  int64_t arena_planned_bytes() const override { return arena_->size_bytes(); }
  int64_t arena_used_bytes() const override;
  int64_t workspace_bytes() const override { return arena_->workspace_bytes(); }

 private:
  /// A tensor that checkpoints contain, and a program through which it is read and written.
  struct Saved {
    Executor* executor;
    TensorId id;
    const TensorInfo& info() const { return executor->program().graph.tensor(id); }
    bool is_weight() const {
      return info().role == Role::kParameter || info().role == Role::kState;
    }
  };

  const Graph& graph() const { return train_->program().graph; }
  const ProgramIds& update_ids() const { return update_.has_value() ? update_ids_ : train_ids_; }
  bool scales_loss() const { return update_ids().scaled.scale != kNoTensor; }
  bool has_gradient_norm() const { return update_ids().gradient_norm != kNoTensor; }
  Executor& updater() { return update_.has_value() ? *update_ : *train_; }
  void find_saved();
  /// Reads tensor `index` of saved_ as a whole; if it is sharded, from the sessions of all `ranks`.
  void read_whole(size_t index, const std::vector<const Session*>& ranks,
                  std::span<std::byte> values) const;
  /// Returns a tensor for a snapshot, whose bytes are in `storage` or in the arena.
  TensorView copy_of(size_t index, const std::vector<const Session*>& ranks,
                     std::vector<std::byte>& storage) const;
  /// Returns the bytes of a tensor in the memory of the host, as they are stored.
  std::span<const std::byte> stored_in_place(const Saved& saved) const;
  /// Writes a tensor, or this rank's shard of it; `values` are those of the whole tensor.
  void write_whole(const Saved& to, std::span<const std::byte> values);
  void write_whole(const Saved& to, const TensorView& view);
  /// Returns the tensor that is evaluated for a weight: its moving average, if there is one.
  const Saved& evaluated(const Saved& weight) const;
  /// Indices into saved_ of the tensors that a copy contains, in the copy's order.
  std::vector<size_t> copied_tensors(Copied copied) const;
  // For batches from the host: the inputs of a program are collected and copied as one block
  // (Backend::copy_block_to_device()); each program is recorded separately.
  void add_piece(const Executor& executor, TensorId id, std::span<const std::byte> bytes);
  void bring_pieces();
  void begin_micro_batch(const StepInputs& inputs, int64_t index, std::byte* results);
  void begin_step_from_host(const StepInputs& inputs, std::byte* results);
  /// Returns the weight of this rank's part of a micro-batch (StepInputs::loss_shares).
  float loss_share(const StepInputs& inputs, int64_t micro_batch) const;
  /// Allocates result buffers for submissions of up to `steps` steps.
  void make_submissions(int64_t steps);
  /// Runs the evaluation program on the input that was written before.
  void run_evaluation();

  /// Steps that were submitted together. `results` has a slot for each step's results
  /// (step_slots.h), which are valid after `mark` has been waited for.
  struct Submission {
    HostBuffer results;
    int64_t mark = 0;
    int64_t steps = 0, finished = 0;
    std::vector<float> loss_shares = {};  // by micro-batch; empty: all are 1
  };

  Backend& backend_;
  const Rank rank_;
  const std::shared_ptr<const WeightsFile> mapped_;
  // Only the IDs; the programs are in the executors.
  ProgramIds train_ids_, update_ids_, average_ids_, evaluate_ids_;
  std::optional<Arena> arena_;
  std::optional<Executor> train_, update_, average_, evaluate_;
  const StepSlots slots_;
  std::optional<ResidentDataset> data_;
  std::optional<ResidentSteps> resident_;  // steps on data_
  std::optional<StagedRows> staged_;
  std::vector<Saved> saved_;  // weights and optimizer state, in the order of the programs
  std::map<std::string, size_t, std::less<>> saved_by_name_;
  int64_t evaluation_batch_ = 0, evaluation_rows_ = 0;  // rows per input batch; rows per output
  std::vector<std::unique_ptr<Submission>>
      submissions_;                       // a ring of those that may be under way at a time
  int64_t submitted_ = 0, finished_ = 0;  // number of submissions
  std::vector<HostPiece> pieces_;         // inputs of the next program
  std::vector<float> logits_;
  std::vector<float> evaluation_output_;  // output rows, starting at evaluation_first_
  int64_t evaluation_row_elements_ = 0, evaluation_first_ = 0;
};

}  // namespace trainyard
