// src/train/session.h: a job's programs on a device: one arena, weights in and out, one step at a
// time.
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
#include "src/planning/programs.h"
#include "src/runtime/executor.h"
#include "src/train/held_steps.h"
#include "src/train/training_session.h"

namespace trainyard {

/// FAILED_PRECONDITION/MODEL_OP_UNSUPPORTED naming each op of the programs for which the backend
/// has no kernel.
Status check_kernels(const RunPrograms& programs, const Backend& backend);

/// Bytes that the kernels of the programs ask for besides the plan's: known once they are prepared,
/// by this backend with its threads, and then exact. Allocates nothing on the device.
int64_t measure_workspace(RunPrograms programs, Backend& backend);

/// After construction, hold() and travel() nothing is allocated on the device.
class Session final : public TrainingSession {
 public:
  /// `micro_batches`: how many of them are one step. `rank`: which part of every batch this one
  /// computes; its programs are compiled for it.
  Session(RunPrograms programs, Backend& backend, int64_t micro_batches = 1, Rank rank = {});

  void initialize(uint64_t seed) override;
  Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) override;
  Snapshot snapshot() const override { return snapshot(std::vector{this}); }
  /// What the sessions of all ranks, of which this is one, hold together: of what is sharded, each
  /// has a part.
  Snapshot snapshot(const std::vector<const Session*>& ranks) const;
  /// Where a rank's parts of what is sharded lie in a snapshot, or in evaluated weights.
  enum class Copied : uint8_t { kAll, kEvaluated };
  std::vector<std::span<std::byte>> parts_of(Snapshot& snapshot, Rank rank, Copied copied) const;
  Snapshot evaluated_weights() const override { return evaluated_weights(std::vector{this}); }
  Snapshot evaluated_weights(const std::vector<const Session*>& ranks) const;
  void set_evaluated_weights(const Snapshot& weights) override;
  std::vector<TensorInfo> weight_tensors() const override;
  void write_weight(std::string_view name, std::span<const std::byte> bytes) override;
  /// A checksum of each tensor that all ranks hold alike, by name: not of running statistics, nor
  /// of shards.
  std::map<std::string, uint32_t> checksums() const;
  /// What is neither trained nor the optimizer's, such as running statistics, becomes that of
  /// another session of the same job.
  void copy_state(const Session& from) { write_state(from.read_state()); }
  /// All of that, one tensor behind the other.
  std::vector<std::byte> read_state() const;
  void write_state(std::span<const std::byte> values);

  void hold(const HeldSource& source) override;
  void travel(const TravelSource& source) override { travelling_.emplace(backend_, source); }
  /// The inputs are the whole batch, the result is that of this rank's rows.
  void begin_steps(int64_t count, const std::function<StepInputs()>& next) override;
  int64_t together(int64_t most) const override;
  StepResult finish_step() override;
  bool runs_ahead() const override { return backend_.runs_ahead(); }
  void wait_behind_nodes(bool waits) override;

  // By the evaluation program.
  void evaluate(std::span<const std::byte> input) override;
  void evaluate_held(std::span<const kernels::HeldSample> samples) override;
  std::span<const float> evaluation_output(int64_t row) override;
  int64_t evaluation_batch() const override { return evaluation_batch_; }
  /// > 0: outputs hold this rank's of so many classes, `output_columns()` of them, for the rows of
  /// all ranks; the last ranks may have fewer classes than columns.
  int64_t split_classes() const { return train_ids_.split_classes; }
  int64_t output_columns() const;
  /// Numbers of a row's output, and rows that are read back at a time.
  int64_t evaluation_row_elements() const { return evaluation_row_elements_; }
  int64_t evaluation_rows_read() const {
    return std::ssize(evaluation_output_) / std::max<int64_t>(1, evaluation_row_elements_);
  }

  int64_t arena_planned_bytes() const override { return arena_->size_bytes(); }
  int64_t arena_used_bytes() const override;
  int64_t workspace_bytes() const override { return arena_->workspace_bytes(); }

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
  const ProgramIds& update_ids() const { return update_.has_value() ? update_ids_ : train_ids_; }
  bool scales_loss() const { return update_ids().scaled.scale != kNoTensor; }
  bool has_gradient_norm() const { return update_ids().gradient_norm != kNoTensor; }
  Executor& updater() { return update_.has_value() ? *update_ : *train_; }
  void find_saved();
  /// Tensor `index` of saved_, whole: of what is sharded, each of the ranks has a part.
  void read_whole(size_t index, const std::vector<const Session*>& ranks,
                  std::span<std::byte> values) const;
  /// This rank's part of it, if it is sharded.
  void write_whole(const Saved& to, std::span<const std::byte> values);
  /// Where a weight is evaluated.
  const Saved& evaluated(const Saved& weight) const;
  /// The tensors of saved_ that a copy has, in its order.
  std::vector<size_t> copied_tensors(Copied copied) const;
  // Where batches come from the host: what a program reads in one block (Backend), each program
  // recorded by itself.
  void add_piece(const Executor& executor, TensorId id, std::span<const std::byte> bytes);
  void bring_pieces();
  void begin_micro_batch(const StepInputs& inputs, int64_t index, std::byte* results);
  void begin_step_from_host(const StepInputs& inputs, std::byte* results);
  /// Makes room for the results of so many steps at once.
  void make_submissions(int64_t steps);
  /// Of the input that was brought before.
  void run_evaluation();

  /// Steps that were submitted together, and a slot for each one's results (step_slots.h), which
  /// have come when the mark was waited for.
  struct Submission {
    HostBuffer results;
    int64_t mark = 0;
    int64_t steps = 0, finished = 0;
  };

  Backend& backend_;
  const Rank rank_;
  // Ids only; the programs live in the executors.
  ProgramIds train_ids_, update_ids_, average_ids_, evaluate_ids_;
  std::optional<Arena> arena_;
  std::optional<Executor> train_, update_, average_, evaluate_;
  const StepSlots slots_;
  std::optional<HeldDataset> data_;
  std::optional<HeldSteps> held_;  // steps of it
  std::optional<TravellingRows> travelling_;
  std::vector<Saved> saved_;  // weights and optimizer state, in the order of the programs
  std::map<std::string, size_t, std::less<>> saved_by_name_;
  int64_t evaluation_batch_ = 0, evaluation_rows_ = 0;    // that are put in; that come out
  bool evaluation_exchanges_ = false;                     // it meets the other ranks
  std::vector<std::unique_ptr<Submission>> submissions_;  // that may be under way at a time
  int64_t submitted_ = 0, finished_ = 0;                  // submissions
  std::vector<HostPiece> pieces_;                         // that the next program reads
  std::vector<float> logits_;
  std::vector<float> evaluation_output_;  // of rows from evaluation_first_ on
  int64_t evaluation_row_elements_ = 0, evaluation_first_ = 0;
};

}  // namespace trainyard
