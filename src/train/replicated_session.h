// src/train/replicated_session.h: trains one job on several devices ("data parallel"). Each rank
// stores all weights and computes its part of every batch on its own thread. Gradients are averaged
// before the update (src/optim/all_reduce.h), so that the weights are bit-identical on all ranks.
// Checkpoints contain rank 0's tensors and the other ranks' shards (src/optim/sharding.h). In an
// evaluation each rank computes its part of the rows.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/cuda_error.h"
#include "src/runtime/peers.h"
#include "src/train/rank_team.h"
#include "src/train/session.h"

namespace trainyard {

/// One of several devices has made no progress, and the others wait for it: a device fault. what()
/// names the first device that stopped, and the place in the step.
class RankStopped : public CudaError {
 public:
  explicit RankStopped(const std::string& message) : CudaError(message, 0) {}
};

/// The devices no longer store the same weights although all have made the same steps: a device,
/// its memory or a link has changed bits without an error. This is a device fault. what() names the
/// step, the tensor, and the rank if most of the others agree.
class RanksDiffer : public CudaError {
 public:
  explicit RanksDiffer(const std::string& message) : CudaError(message, 0) {}
};

/// Time limits in seconds after which a rank is considered stopped.
struct StepLimits {
  double first_s = 900;  // for each of the first steps, which include setup
  double least_s = 120;  // the shortest limit for later steps
  double times = 20;     // if longer, the limit is this multiple of the slowest step so far
  double grace_s = 10;   // for ranks to return after the run was given up
};

class ReplicatedSession final : public TrainingSession {
 public:
  /// `programs` by rank, from compile_run(); `devices` must be connected. In a job of several
  /// processes both are those of this process. `mapped` as for a Session.
  ReplicatedSession(std::vector<RunPrograms> programs, std::vector<RankDevice> devices,
                    int64_t micro_batches, const StepLimits& limits = {},
                    const std::shared_ptr<const WeightsFile>& mapped = nullptr);
  ~ReplicatedSession() override;

  void initialize(uint64_t seed) override;
  Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) override;
  Snapshot snapshot() const override;
  void check_replicas(int64_t step) override;
  Snapshot evaluated_weights() const override;
  void set_evaluated_weights(const Snapshot& weights) override;
  std::vector<TensorInfo> weight_tensors() const override { return first().weight_tensors(); }
  void write_weight(std::string_view name, std::span<const std::byte> bytes) override;
  void write_weight_part(std::string_view name, int64_t first,
                         std::span<const std::byte> bytes) override;

  void make_resident(const ResidentSource& source) override;
  void stage_rows(const StagedSource& source) override;
  /// begin_steps() and finish_step() throw the first exception of a rank, or RankStopped;
  /// afterwards the session must not be used.
  void begin_steps(int64_t count, const std::function<StepInputs()>& next) override;
  int64_t together(int64_t /*most*/) const override { return 1; }
  StepResult finish_step() override;
  bool runs_ahead() const override { return first().runs_ahead(); }
  void wait_after_nodes(bool waits) override;

  /// Each rank computes one batch of its own program, with rank 0's running statistics, so that a
  /// row's result does not depend on its rank. Throws like a step.
  void evaluate(std::span<const std::byte> input,
                std::span<const std::byte> positions = {}) override;
  void evaluate_resident(std::span<const kernels::ResidentSample> samples) override;
  std::span<const float> evaluation_output(int64_t row) override;
  int64_t evaluation_batch() const override { return first().evaluation_batch() * all_ranks(); }

  bool is_first() const override { return peers_ == nullptr || peers_->index() == 0; }
  bool any(bool here) override;
  std::string of_first(std::string text) override;

  /// Returns the sizes of rank 0; they are equal on all ranks.
  int64_t arena_planned_bytes() const override { return first().arena_planned_bytes(); }
  int64_t arena_used_bytes() const override { return first().arena_used_bytes(); }
  int64_t workspace_bytes() const override { return first().workspace_bytes(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// All data that a rank's thread uses, shared so that a stuck thread can keep it.
  struct Replicas {
    std::vector<RankDevice> devices;
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<StepResult> results;
    std::vector<std::map<std::string, uint32_t>> checksums;
  };

  Session& first() const { return *replicas_->sessions.front(); }
  std::vector<const Session*> all() const;
  /// Completes a snapshot: the first process receives the shards of the other processes' ranks; the
  /// other processes send theirs and receive nothing.
  void collect_shards(Snapshot& snapshot, Session::Copied copied) const;
  /// With a split head: appends a row of scores, joined from all ranks' classes. `parts` are each
  /// rank's columns of the row, position by position.
  void join_classes(std::span<const std::span<const float>> parts, std::vector<float>& row) const;
  size_t ranks() const { return replicas_->devices.size(); }  // in this process
  int64_t all_ranks() const {
    return peers_ == nullptr ? std::ssize(replicas_->devices) : peers_->ranks();
  }
  int64_t first_rank() const { return peers_ == nullptr ? 0 : peers_->first_rank(); }
  /// Returns the part of a span over all ranks that belongs to rank `r` of this process.
  template <typename T>
  std::span<const T> of_rank(std::span<const T> all, size_t r) const {
    const size_t size = all.size() / static_cast<size_t>(all_ranks());
    return all.subspan((static_cast<size_t>(first_rank()) + r) * size, size);
  }
  /// Runs task(replicas, rank) on all ranks of this process.
  void run_all(std::function<void(Replicas&, size_t)> task, double limit_s);
  std::optional<RankTeam::Failure> watch() const;
  /// Joins the ranks' outputs of the step in the order of the batch's rows.
  void join_logits(const std::vector<StepResult>& parts);
  [[noreturn]] void fail(const RankTeam::Failure& failure, double limit_s);
  /// Aborts the exchanges and, if all ranks then return, destroys their sessions. Takes at most
  /// twice StepLimits::grace_s.
  void give_up();
  std::string describe_stop(double limit_s) const;
  /// Returns text such as "rank 3 (devices/gpu-1)"; `rank` counts within this process.
  std::string name_of(size_t rank) const;
  /// Returns the process for which this one's connections wait, if it has exceeded the limit.
  std::optional<RankLost> find_silent(double limit_s) const;
  /// Returns true if exchanges bypass the connections between processes, as between GPUs. Then an
  /// exchange does not notice the end of another process, so this session must check for it.
  bool must_check_peers() const;
  /// Returns whether all ranks of this process wait in an exchange with ranks of other processes
  /// (between GPUs).
  bool waits_for_others() const;
  /// Returns another process that has ended, or ends within `within_s`.
  std::optional<RankLost> find_ended(double within_s) const;
  /// Returns the names of the other processes, e.g. "ranks 2 to 3, ranks 4 to 5".
  std::string names_of_others() const;
  /// Returns the checksums of all processes' ranks, by rank.
  std::vector<std::map<std::string, uint32_t>> all_checksums() const;
  /// Returns the losses and outputs of all ranks, by rank; each has its part of every micro-batch.
  std::vector<StepResult> all_results();
  double step_limit_s() const;
  /// Copies rank 0's running statistics to all ranks, once after each step.
  void share_state();

  std::shared_ptr<Replicas> replicas_;
  Peers* const peers_;  // of the devices' communicators; nullptr if there is one process
  const std::vector<std::string> exchanges_;  // node names of a step's exchanges, in order
  const int64_t evaluation_exchanges_;        // exchanges in a run of the evaluation program
  const int64_t micro_batches_;
  const StepLimits limits_;
  std::vector<float> logits_, gathered_, evaluated_row_;
  int64_t evaluations_ = 0;  // finished runs of the evaluation program
  bool evaluates_ = false;
  std::vector<float> shared_rows_;           // some rows of an evaluation's output
  int64_t shared_first_ = 0;                 // the row of the batch at which shared_rows_ starts
  std::deque<Clock::time_point> under_way_;  // start times of the submitted steps
  int64_t first_step_ = 0, steps_begun_ = 0, steps_finished_ = 0;
  int64_t state_of_ = -1;  // value of steps_begun_ when all ranks last received rank 0's state
  double slowest_s_ = 0;
  const int exceptions_before_;
  bool gave_up_ = false;
  RankTeam team_;  // last member, so that its threads end first
};

}  // namespace trainyard
