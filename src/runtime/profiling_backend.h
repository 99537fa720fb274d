// src/runtime/profiling_backend.h: wraps a backend and times each node that it runs.
//
// All calls are forwarded. Between begin() and end() kernels are submitted one by one, with a time
// measurement between them; recordings are not replayed then. Otherwise nothing is timed, and runs
// take as long as without the wrapper.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/runtime/forwarding_backend.h"

namespace trainyard {

/// A node, and its work in one run.
struct NodeWork {
  std::string name;
  std::string_view op;
  Phase phase = Phase::kForward;
  Cost cost;
  bool multiplies_half = false;  // its products are of 16-bit numbers
  bool multiplies_tf32 = false;  // it may round the factors of its products to TF32
};
NodeWork work_of(const Graph& graph, const Node& node);

/// Returns the minimum time that a device needs for the work, limited by its FLOPs and its bytes; 0
/// if the peak is not known.
double least_seconds(const NodeWork& work, const DevicePeak& peak);

struct NodeRun {
  size_t node = 0;  // index into ProfilingBackend::nodes()
  double begin_s = 0, end_s = 0;
};

class ProfilingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void begin();
  /// Waits for all kernels since begin() and returns their times, relative to the first node that
  /// ran.
  std::vector<NodeRun> end();
  /// Returns the time on the host's clock when the first of these nodes was submitted.
  std::chrono::steady_clock::time_point first_point() const { return first_point_; }
  /// Returns the nodes, or groups of nodes with one kernel, in the order in which they were
  /// prepared.
  const std::vector<NodeWork>& nodes() const { return nodes_; }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override;
  std::unique_ptr<Kernel> prepare_group(const Graph& graph, std::span<const NodeId> nodes) override;
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    at_point_ = false;
    ForwardingBackend::copy_to_device(device, host, bytes);
  }
  void copy_block_to_device(std::span<const HostPiece> pieces) override {
    at_point_ = false;
    ForwardingBackend::copy_block_to_device(pieces);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    at_point_ = false;
    ForwardingBackend::copy_to_host(host, device, bytes);
  }
  void gather_rows(const kernels::ResidentRows& resident, const kernels::ResidentSample* samples,
                   int64_t count, void* x, void* target,
                   std::span<const kernels::CopyPiece> copies) override {
    at_point_ = false;
    ForwardingBackend::gather_rows(resident, samples, count, x, target, copies);
  }
  void copy_pieces(std::span<const kernels::CopyPiece> pieces) override {
    at_point_ = false;
    ForwardingBackend::copy_pieces(pieces);
  }
  void begin_copy_to_host(void* host, const void* device, int64_t bytes) override {
    at_point_ = false;
    ForwardingBackend::begin_copy_to_host(host, device, bytes);
  }

 private:
  friend class TimedKernel;
  friend class TimedRecording;
  struct Span {
    size_t node, begin, end;  // `begin` and `end` are point numbers
  };
  void mark_point();

  std::vector<NodeWork> nodes_;
  std::unique_ptr<Stopwatch> stopwatch_;
  bool is_on_ = false;
  bool at_point_ = false;  // whether nothing was submitted after the last point
  size_t points_ = 0;
  std::chrono::steady_clock::time_point first_point_;
  std::vector<Span> spans_;
};

}  // namespace trainyard
