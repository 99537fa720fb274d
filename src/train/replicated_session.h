// src/train/replicated_session.h: one job on several devices ("data parallel"). Each rank holds all
// weights and computes its part of every batch on a thread of its own; the gradients become one
// before the update (src/optim/all_reduce.h), so that all ranks hold the same weights to the bit.
// Rank 0 is the one that is stored, with the parts of a sharded state (src/optim/sharding.h) that
// the others hold. All of them evaluate, each its part of the rows.
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

/// A device of several has not gone on, and the others wait for it: a device fault. what() names
/// the first that stopped, and where.
class RankStopped : public CudaError {
 public:
  explicit RankStopped(const std::string& message) : CudaError(message, 0) {}
};

/// The devices no longer hold the same weights, although each has taken the same steps: a device,
/// its memory or a link has changed bits without an error. A device fault. what() names the step,
/// the tensor, and the rank if most of the others agree.
class RanksDiffer : public CudaError {
 public:
  explicit RanksDiffer(const std::string& message) : CudaError(message, 0) {}
};

/// How long a step may take before a rank is said to have stopped.
struct StepLimits {
  double first_s = 900;  // each of the first steps, in which much is set up
  double least_s = 120;  // later ones: this, or ...
  double times = 20;     // ... so many times the slowest step so far
  double grace_s = 10;   // for ranks to come back when all is given up
};

class ReplicatedSession final : public TrainingSession {
 public:
  /// `programs` by rank, as compile_run() makes them; `devices` are connected. Of a job of several
  /// processes both are this one's.
  ReplicatedSession(std::vector<RunPrograms> programs, std::vector<RankDevice> devices,
                    int64_t micro_batches, const StepLimits& limits = {});
  ~ReplicatedSession() override;

  void initialize(uint64_t seed) override;
  Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) override;
  Snapshot snapshot() const override;
  void check_replicas(int64_t step) override;
  Snapshot evaluated_weights() const override;
  void set_evaluated_weights(const Snapshot& weights) override;
  std::vector<TensorInfo> weight_tensors() const override { return first().weight_tensors(); }
  void write_weight(std::string_view name, std::span<const std::byte> bytes) override;

  void hold(const HeldSource& source) override;
  void travel(const TravelSource& source) override;
  /// Both throw what a rank threw first, or RankStopped; the session is not to be used then.
  void begin_steps(int64_t count, const std::function<StepInputs()>& next) override;
  int64_t together(int64_t /*most*/) const override { return 1; }
  StepResult finish_step() override;
  bool runs_ahead() const override { return first().runs_ahead(); }
  void wait_behind_nodes(bool waits) override;

  /// Each rank a batch of its own program, with rank 0's running statistics: a row's result does
  /// not depend on which rank it comes to. Throws as a step does.
  void evaluate(std::span<const std::byte> input) override;
  void evaluate_held(std::span<const kernels::HeldSample> samples) override;
  std::span<const float> evaluation_output(int64_t row) override;
  int64_t evaluation_batch() const override { return first().evaluation_batch() * all_ranks(); }

  bool is_first() const override { return peers_ == nullptr || peers_->index() == 0; }
  bool any(bool here) override;
  std::string of_first(std::string text) override;

  /// Of rank 0; the others have as much.
  int64_t arena_planned_bytes() const override { return first().arena_planned_bytes(); }
  int64_t arena_used_bytes() const override { return first().arena_used_bytes(); }
  int64_t workspace_bytes() const override { return first().workspace_bytes(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Everything that a rank's thread works with. A thread that is stuck keeps it.
  struct Replicas {
    std::vector<RankDevice> devices;
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<StepResult> results;
    std::vector<std::map<std::string, uint32_t>> checksums;
  };

  Session& first() const { return *replicas_->sessions.front(); }
  std::vector<const Session*> all() const;
  /// What other processes' ranks hold of a copy: the first process gets it, and gives what it has
  /// to no other.
  void bring_parts(Snapshot& snapshot, Session::Copied copied) const;
  /// Of a split head: appends a row, whose classes are put together from all ranks' parts.
  /// `parts`: each rank's columns of it, position by position.
  void join_classes(std::span<const std::span<const float>> parts, std::vector<float>& row) const;
  size_t ranks() const { return replicas_->devices.size(); }  // of this process
  int64_t all_ranks() const {
    return peers_ == nullptr ? std::ssize(replicas_->devices) : peers_->ranks();
  }
  int64_t first_rank() const { return peers_ == nullptr ? 0 : peers_->first_rank(); }
  /// This process's part of what a call gives to all ranks, and in it that of one of its ranks.
  template <typename T>
  std::span<const T> of_rank(std::span<const T> all, size_t r) const {
    const size_t size = all.size() / static_cast<size_t>(all_ranks());
    return all.subspan((static_cast<size_t>(first_rank()) + r) * size, size);
  }
  /// task(replicas, rank) on all ranks.
  void run_all(std::function<void(Replicas&, size_t)> task, double limit_s);
  std::optional<RankTeam::Failure> watch() const;
  /// The step's output, by row of the batch.
  void join_logits(const std::vector<StepResult>& parts);
  [[noreturn]] void fail(const RankTeam::Failure& failure, double limit_s);
  std::string describe_stop(double limit_s) const;
  /// "rank 3 (devices/gpu-1)", counted in this process.
  std::string name_of(size_t rank) const;
  /// Another process's ranks are waited for, in an exchange to which all of this one's have come.
  std::optional<RankLost> find_silent(double limit_s) const;
  /// Exchanges go past the connections of the processes, between GPUs: nobody notices there who
  /// has gone.
  bool looks_after_peers() const;
  /// Whether all ranks of this process are in an exchange with those of others, as between GPUs.
  bool waits_for_others() const;
  /// Another process that has gone, or goes within that time.
  std::optional<RankLost> find_gone(double within_s) const;
  /// "ranks 2 to 3, ranks 4 to 5".
  std::string names_of_others() const;
  /// What is read of the checksums of all processes' ranks.
  std::vector<std::map<std::string, uint32_t>> all_checksums() const;
  /// Losses and rows of all ranks, by rank: of each its part of every micro-batch.
  std::vector<StepResult> all_results();
  double step_limit_s() const;
  /// Running statistics of all ranks become rank 0's, once behind each step.
  void share_state();

  std::shared_ptr<Replicas> replicas_;
  Peers* const peers_;                        // of the devices' communicators; or nullptr
  const std::vector<std::string> exchanges_;  // of a step, by node name
  const int64_t evaluation_exchanges_;        // of a run of the evaluation program
  const int64_t micro_batches_;
  const StepLimits limits_;
  std::vector<float> logits_, gathered_, evaluated_row_;
  int64_t evaluations_ = 0;  // runs that have ended
  bool evaluates_ = false;
  std::vector<float> shared_rows_;           // of an evaluation's output, from ...
  int64_t shared_first_ = 0;                 // ... this row of the batch on
  std::deque<Clock::time_point> under_way_;  // when they began
  int64_t first_step_ = 0, steps_begun_ = 0, steps_finished_ = 0;
  int64_t state_of_ = -1;  // steps that had begun when all ranks got rank 0's state
  double slowest_s_ = 0;
  const int exceptions_before_;
  RankTeam team_;  // last: its threads end first
};

}  // namespace trainyard
