// src/train/rank_team.h: a thread for each rank of a job, and somebody who waits for all of them
// without trusting any.
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
  /// Joins the threads. Those that gather() gave up are left to themselves.
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  /// What a task threw, first of all; or none did, and some have not come back in time.
  struct Failure {
    std::optional<size_t> rank;
    std::exception_ptr error;
  };
  /// Calls task(rank) for all ranks, each on its own thread, and returns when all are back; or with
  /// a failure, as soon as there is one, while others may still run. `watch` is called from time to
  /// time meanwhile and returns failures from elsewhere. A task must own what it needs, because an
  /// abandoned one keeps it.
  std::optional<Failure> run(std::function<void(size_t)> task, double limit_s,
                             const std::function<std::optional<Failure>()>& watch);
  /// Whether the rank's task has not come back.
  bool is_busy(size_t rank) const;
  /// Waits for those that have not come back, no longer than that, and gives up the others. The
  /// team runs nothing more.
  void gather(double limit_s);

 private:
  struct Shared;
  static void serve(const std::shared_ptr<Shared>& shared, size_t rank);

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard
