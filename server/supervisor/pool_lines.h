// server/supervisor/pool_lines.h: the jobs that wait for pools, and what people are told of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/pool.h"
#include "server/scheduler/pool.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/queue_view.h"
#include "server/store/job.h"
#include "server/supervisor/pools.h"

namespace trainyard::server {

/// Not thread-safe.
class PoolLines {
 public:
  /// Both outlive this.
  PoolLines(std::span<const PoolConfig> configs, const Pools& pools)
      : configs_(configs), pools_(pools) {}

  void put(WaitingJob job);
  void remove(std::string_view uid);
  void clear() { waiting_.clear(); }
  bool empty() const;

  /// Which jobs are handed over now, of all pools.
  Decisions decide(const Shares& shares, bool draining, int64_t now_us) const;
  /// Why the job waits: here, or in the cluster once it was handed over. Nothing for one that is in
  /// no pool, that has its node, or of which its own reason says more.
  std::optional<WaitReason> why(const Job& job, const Shares& shares, bool draining,
                                int64_t now_us) const;
  /// Adds the jobs that wait for pools, behind those that are there: of each pool at first those in
  /// the cluster's own queue. At most `count_max` in all, or with a uid that one.
  void add_to(QueueView& view, const Shares& shares, bool draining, int64_t now_us,
              size_t count_max, const std::string& uid) const;

 private:
  std::optional<PoolState> state_of(const std::string& pool, bool draining) const;

  std::span<const PoolConfig> configs_;
  const Pools& pools_;
  std::map<std::string, Queue, std::less<>> waiting_;  // by pool
};

}  // namespace trainyard::server
