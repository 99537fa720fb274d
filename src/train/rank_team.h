// src/train/rank_team.h: one thread per rank of a job, and a caller that waits for all of them with
// a time limit, since any of them may get stuck.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace trainyard {

class RankTeam {
 public:
  explicit RankTeam(size_t ranks);
  /// Joins the threads, except those that end() has detached.
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  /// The first exception of a task; or, without `rank` and `error`, tasks that did not return in
  /// time.
  struct Failure {
    std::optional<size_t> rank;
    std::exception_ptr error;
  };
  /// Calls task(rank) for all ranks, each on its own thread. Returns when all have returned, or as
  /// soon as there is a failure, while others may still run. Meanwhile `watch` is called regularly
  /// and may report a failure that no task has thrown. A task must own what it needs, because a
  /// stuck task keeps using it.
  std::optional<Failure> run(std::function<void(size_t)> task, double limit_s,
                             const std::function<std::optional<Failure>()>& watch);
  /// Returns whether the rank's task is still running.
  bool is_busy(size_t rank) const;
  /// Waits up to `limit_s` for running tasks. If all have returned, calls last(rank) for all ranks,
  /// each on its own thread, and waits as long again. Detaches the threads that are still busy
  /// then; they count as unfinished work (src/base/detached_call.h). The team must not be used
  /// afterwards.
  void end(std::function<void(size_t)> last, double limit_s);

 private:
  struct Shared;
  static void serve(const std::shared_ptr<Shared>& shared, size_t rank);

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard
