// tests/support/watching_backend.h: a host backend that detects which bytes of its memory are
// written.
//
// It does not know the memory plan. Before each kernel of the inner backend it fills everything
// that the kernel may write (outputs, updated tensors, its workspace) with a poison byte.
// Afterwards it compares all memory with a copy: changed bytes inside are marked as touched;
// changed bytes elsewhere, including padding and the guard after the memory, are faults. The poison
// byte alternates between runs, so that a kernel that happens to write that value is found in the
// next run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/host/host_memory.h"

namespace trainyard::testing {

class WatchingBackend final : public HostBackend {
 public:
  /// `inner` computes on the host and must outlive this object. Comparing all memory after every
  /// kernel is slow for large memory; with `compare_every` = n it is done after every n-th kernel.
  explicit WatchingBackend(Backend& inner, int64_t compare_every = 1);
  ~WatchingBackend() override;

  std::string_view name() const override { return inner_.name(); }
  Processor processor() const override { return inner_.processor(); }
  bool has_kernel(std::string_view op_type) const override { return inner_.has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override;
  /// Supports one block of memory at a time.
  void* allocate(int64_t bytes) override;
  void release(void* memory) noexcept override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;

  int64_t allocated_bytes() const { return bytes_; }
  /// Returns the end of the last cache line before byte `end` that was ever written to.
  int64_t touched_end(int64_t end) const;
  /// Returns the end of the largest workspace that a kernel had. Part of it stays untouched, since
  /// libraries request additional bytes for alignment and a kernel's workspace has room for every
  /// thread.
  int64_t workspace_end() const { return workspace_end_; }
  /// Compares all memory once more. Returns a description of the first forbidden write, or "".
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
  std::vector<std::byte> copy_;  // expected content of memory and guard
  std::vector<bool> touched_;    // one flag per cache line
  std::string fault_;
};

}  // namespace trainyard::testing
