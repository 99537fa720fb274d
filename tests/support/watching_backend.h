// tests/support/watching_backend.h: a host backend that sees which bytes of its memory are written.
//
// It knows nothing of a plan. Around each kernel of the backend inside it, what the kernel may
// write (its outputs, what it updates, the workspace that it asked for) is poisoned, and afterwards
// all memory is compared with a copy: changed bytes inside are touched, changed bytes elsewhere,
// padding and the guard behind the memory included, are faults. Poison alternates from run to run,
// so that a kernel that happens to write its value is seen the next time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/host/host_memory.h"

namespace trainyard::testing {

class WatchingBackend final : public HostBackend {
 public:
  /// `inner` computes on the host and outlives this. Comparing all memory behind every kernel takes
  /// long where it is large: `compare_every` > 1 does it behind each so-manieth.
  explicit WatchingBackend(Backend& inner, int64_t compare_every = 1);
  ~WatchingBackend() override;

  std::string_view name() const override { return inner_.name(); }
  Processor processor() const override { return inner_.processor(); }
  bool has_kernel(std::string_view op_type) const override { return inner_.has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override;
  /// One block of memory at a time.
  void* allocate(int64_t bytes) override;
  void release(void* memory) noexcept override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;

  int64_t allocated_bytes() const { return bytes_; }
  /// End of the last cache line before byte `end` in which anything was ever written.
  int64_t touched_end(int64_t end) const;
  /// End of the largest workspace that a kernel had while it ran. Part of it stays untouched:
  /// libraries ask for room to align in, and a kernel has room for every thread of its team.
  int64_t workspace_end() const { return workspace_end_; }
  /// Compares all memory once more. What was written where nobody may, first of all; empty:
  /// nothing.
  const std::string& fault();

 private:
  friend class WatchedKernel;
  struct Range {
    std::byte* begin;
    int64_t bytes;
  };
  void poison(const Range& range, int run);
  void mark_changed(const Range& range);
  void compare(const std::string& after);

  Backend& inner_;
  int64_t compare_every_;
  int64_t kernels_run_ = 0;
  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0;
  int64_t workspace_end_ = 0;
  std::vector<std::byte> copy_;  // of memory and guard, as it should be
  std::vector<bool> touched_;    // by cache line
  std::string fault_;
};

}  // namespace trainyard::testing
