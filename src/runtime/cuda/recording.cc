#include "src/runtime/cuda/recording.h"

#include <algorithm>
#include <utility>

#include "src/runtime/cuda/nvtx_range.h"

namespace trainyard::cuda {
namespace {

using CapturedGraph = Handle<CUgraph_st, cudaGraphDestroy>;
using GraphExec = Handle<CUgraphExec_st, cudaGraphExecDestroy>;

GraphExec capture(const Device& device, const std::function<void()>& submit) {
  // CUDA calls of other threads are not captured, and cannot invalidate the capture.
  check(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  cudaGraph_t captured = nullptr;
  try {
    submit();
  } catch (...) {
    (void)cudaStreamEndCapture(device.stream(), &captured);
    const CapturedGraph owner(captured);
    throw;
  }
  const cudaError_t status = cudaStreamEndCapture(device.stream(), &captured);
  const CapturedGraph graph(captured);
  check(status, "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
  GraphExec owner(exec);
  // Otherwise the first replay would do the upload.
  check(cudaGraphUpload(owner.get(), device.stream()), "cudaGraphUpload");
  return owner;
}

class GraphRecording final : public Recording {
 public:
  GraphRecording(const Device& device, GraphExec graph)
      : device_(device), graph_(std::move(graph)) {}
  void replay() override {
    const NvtxRange range("recorded step");
    device_.make_current();
    check(cudaGraphLaunch(graph_.get(), device_.stream()), "cudaGraphLaunch");
  }

 private:
  const Device& device_;
  GraphExec graph_;
};

/// The same steps in one lane and in two. The first replays use both by turns, and measure them,
/// while they do the job's work.
class ComparedRecording final : public Recording {
 public:
  ComparedRecording(const Device& device, GraphExec one_lane, GraphExec two_lanes)
      : device_(device),
        ways_{Way(device, std::move(one_lane)), Way(device, std::move(two_lanes))} {}

  void replay() override {
    device_.make_current();
    if (!is_chosen_ && are_measured()) choose();
    const bool is_measuring = ways_[1].points.size() < kPoints;
    if (is_chosen_ || !is_measuring) return ways_[0].recording->replay();
    Way& way = ways_[ways_[0].points.size() > ways_[1].points.size() ? 1 : 0];
    add_point(way);
    way.recording->replay();
    add_point(way);
  }

 private:
  static constexpr size_t kRuns = 5;  // of each; the shortest counts
  static constexpr size_t kPoints = 2 * kRuns;
  // A smaller relative gain is noise.
  static constexpr float kGainMin = 0.02F;

  struct Way {
    Way(const Device& device, GraphExec graph)
        : recording(std::make_unique<GraphRecording>(device, std::move(graph))) {}
    std::unique_ptr<Recording> recording;
    std::vector<Event> points;  // before and after each measured replay
  };

  void add_point(Way& way) const {
    way.points.push_back(Device::make_timed_event());
    check(cudaEventRecord(way.points.back().get(), device_.stream()), "cudaEventRecord");
  }

  /// Returns whether the last measured replay has ended. Does not wait for it.
  bool are_measured() const {
    if (ways_[1].points.size() < kPoints) return false;
    const cudaError_t status = cudaEventQuery(ways_[1].points.back().get());
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(status, "measuring recorded steps");
    return true;
  }

  void choose() {
    if (least_ms(ways_[1]) < (1 - kGainMin) * least_ms(ways_[0])) std::swap(ways_[0], ways_[1]);
    ways_[1].recording.reset();
    for (Way& way : ways_) way.points.clear();
    is_chosen_ = true;
  }

  static float least_ms(const Way& way) {
    float least = 0;
    for (size_t i = 0; i < way.points.size(); i += 2) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, way.points[i].get(), way.points[i + 1].get()),
            "cudaEventElapsedTime");
      least = i == 0 ? ms : std::min(least, ms);
    }
    return least;
  }

  const Device& device_;
  std::array<Way, 2> ways_;  // one lane, two lanes; once chosen, the first is used
  bool is_chosen_ = false;
};

}  // namespace

CapturedLanes::Dependencies CapturedLanes::read() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  check(
      cudaStreamGetCaptureInfo(device_.stream(), &status, nullptr, nullptr, &nodes, &edges, &count),
      "cudaStreamGetCaptureInfo");
  Dependencies dependencies;
  for (size_t i = 0; i < count; ++i) {
    dependencies.push_back({nodes[i], edges == nullptr ? cudaGraphEdgeData{} : edges[i]});
  }
  return dependencies;
}

void CapturedLanes::write(const Dependencies& dependencies) const {
  std::vector<cudaGraphNode_t> nodes;
  std::vector<cudaGraphEdgeData> edges;
  for (const Dependency& d : dependencies) {
    nodes.push_back(d.node);
    edges.push_back(d.edge);
  }
  check(cudaStreamUpdateCaptureDependencies(device_.stream(), nodes.data(), edges.data(),
                                            nodes.size(), cudaStreamSetCaptureDependencies),
        "cudaStreamUpdateCaptureDependencies");
}

bool CapturedLanes::contains(const Dependencies& all, cudaGraphNode_t node) {
  return std::ranges::any_of(all, [&](const Dependency& d) { return d.node == node; });
}

void CapturedLanes::enter(Lane lane, bool waits_for_all) {
  if (lane == lane_ && !waits_for_all) return;
  Dependencies end = read();
  if (end.empty()) return;  // the first node of the recording is in the main lane
  ends_[static_cast<size_t>(lane_)] = std::move(end);
  Dependencies next = ends_[static_cast<size_t>(lane)];
  if (waits_for_all) {
    const Dependencies& other = ends_[lane == Lane::kMain ? 1 : 0];
    Dependencies& waited_for = waited_for_[static_cast<size_t>(lane)];
    for (const Dependency& d : other) {
      if (!contains(waited_for, d.node) && !contains(next, d.node)) next.push_back(d);
    }
    waited_for = other;
  }
  write(next);
  lane_ = lane;
  are_used_ |= lane == Lane::kSide;
}

std::unique_ptr<Recording> Recorder::record(const std::function<void()>& submit) {
  device_.make_current();
  lanes_.emplace(device_);
  GraphExec first;
  try {
    first = capture(device_, submit);
  } catch (...) {
    lanes_.reset();
    throw;
  }
  const bool has_lanes = lanes_->are_used();
  lanes_.reset();
  if (!has_lanes) return std::make_unique<GraphRecording>(device_, std::move(first));
  return std::make_unique<ComparedRecording>(device_, capture(device_, submit), std::move(first));
}

}  // namespace trainyard::cuda
