// src/runtime/cuda/recording.h: recorded steps as CUDA graphs.
//
// A stream that is captured gives each node the dependencies of its current set, and the node
// replaces them. A change of the lane (src/plan/lanes.h) changes the set, so that kernels and
// libraries, which know only the one stream, are recorded in either lane. The graph then has two
// branches.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/runtime/backend.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// The ends of both lanes while a stream is captured.
class CapturedLanes {
 public:
  explicit CapturedLanes(const Device& device) : device_(device) {}
  void enter(Lane lane, bool waits_for_all);
  /// Returns whether anything was submitted to the side lane.
  bool are_used() const { return are_used_; }

 private:
  struct Dependency {
    cudaGraphNode_t node;
    cudaGraphEdgeData edge;
  };
  using Dependencies = std::vector<Dependency>;
  Dependencies read() const;
  void write(const Dependencies& dependencies) const;
  static bool contains(const Dependencies& all, cudaGraphNode_t node);

  const Device& device_;
  // Both are indexed by lane. `ends_` holds what the next node of a lane depends on, unless it is
  // the current one. `waited_for_` holds what a lane has already waited for in the other one.
  std::array<Dependencies, 2> ends_, waited_for_;
  Lane lane_ = Lane::kMain;
  bool are_used_ = false;
};

/// Records steps, in one lane and, if `submit` enters the side lane, also in two. Both recordings
/// give the same bits. The result replays them by turns and keeps the one that takes less time.
class Recorder {
 public:
  explicit Recorder(const Device& device) : device_(device) {}
  std::unique_ptr<Recording> record(const std::function<void()>& submit);
  /// Does what Backend::enter_lane() does, and nothing in a recording with one lane.
  void enter_lane(Lane lane, bool waits_for_all) {
    if (lanes_.has_value()) lanes_->enter(lane, waits_for_all);
  }

 private:
  const Device& device_;
  std::optional<CapturedLanes> lanes_;  // while two lanes are recorded
};

}  // namespace trainyard::cuda
