// src/runtime/forwarding_backend.h: a backend that forwards all calls to another one. A wrapper
// overrides only the functions that it changes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/runtime/backend.h"

namespace trainyard {

class ForwardingBackend : public Backend {
 public:
  /// `inner` must outlive this object.
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}
  explicit ForwardingBackend(std::unique_ptr<Backend> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}

  std::string_view name() const override { return inner_.name(); }
  Processor processor() const override { return inner_.processor(); }
  bool has_kernel(std::string_view op_type) const override { return inner_.has_kernel(op_type); }
  std::string warning() const override { return inner_.warning(); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return inner_.prepare(graph, node);
  }
  std::unique_ptr<Kernel> prepare_group(const Graph& graph,
                                        std::span<const NodeId> nodes) override {
    return inner_.prepare_group(graph, nodes);
  }
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override {
    return inner_.record(submit);
  }
  void enter_lane(Lane lane, bool waits_for_all) override {
    inner_.enter_lane(lane, waits_for_all);
  }

  void use_algorithms(std::shared_ptr<Algorithms> algorithms) override {
    inner_.use_algorithms(std::move(algorithms));
  }
  Algorithms* algorithms() const override { return inner_.algorithms(); }

  int64_t alignment() const override { return inner_.alignment(); }
  bool has_bf16() const override { return inner_.has_bf16(); }
  void* allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory) noexcept override { inner_.release(memory); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    inner_.copy_to_device(device, host, bytes);
  }
  void copy_block_to_device(std::span<const HostPiece> pieces) override {
    inner_.copy_block_to_device(pieces);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    inner_.copy_to_host(host, device, bytes);
  }
  void synchronize() override { inner_.synchronize(); }

  bool supports_resident_rows() const override { return inner_.supports_resident_rows(); }
  void gather_rows(const kernels::ResidentRows& resident, const kernels::ResidentSample* samples,
                   int64_t count, void* x, void* target,
                   std::span<const kernels::CopyPiece> copies) override {
    inner_.gather_rows(resident, samples, count, x, target, copies);
  }
  void copy_pieces(std::span<const kernels::CopyPiece> pieces) override {
    inner_.copy_pieces(pieces);
  }

  bool runs_ahead() const override { return inner_.runs_ahead(); }
  std::unique_ptr<Stopwatch> make_stopwatch() override { return inner_.make_stopwatch(); }
  DevicePeak peak() const override { return inner_.peak(); }
  void* allocate_host(int64_t bytes) override { return inner_.allocate_host(bytes); }
  void release_host(void* memory) noexcept override { inner_.release_host(memory); }
  void begin_copy_to_host(void* host, const void* device, int64_t bytes) override {
    inner_.begin_copy_to_host(host, device, bytes);
  }
  int64_t mark() override { return inner_.mark(); }
  void wait(int64_t mark) override { inner_.wait(mark); }

  /// The other ranks' backends must be wrapped as well.
  Status connect(std::span<Backend* const> ranks) override {
    return inner_.connect(inner_of(ranks));
  }
  Result<std::string> prepare_join(const ProcessGroup& group) override {
    return inner_.prepare_join(group);
  }
  Status join(std::span<Backend* const> ranks, const ProcessGroup& group) override {
    return inner_.join(inner_of(ranks), group);
  }
  Communicator* communicator() override { return inner_.communicator(); }

 private:
  static std::vector<Backend*> inner_of(std::span<Backend* const> ranks) {
    std::vector<Backend*> inner;
    for (Backend* rank : ranks) {
      auto* const wrapped = dynamic_cast<ForwardingBackend*>(rank);
      TRAINYARD_CHECK(wrapped != nullptr, "ranks of several kinds");
      inner.push_back(&wrapped->inner_);
    }
    return inner;
  }

  std::unique_ptr<Backend> owned_;  // may be null
  Backend& inner_;
};

}  // namespace trainyard
