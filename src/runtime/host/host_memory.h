// src/runtime/host/host_memory.h: memory and connections of the backends that compute on the host.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "kernels/alignment.h"
#include "src/runtime/backend.h"
#include "src/runtime/host/host_communicator.h"

namespace trainyard {

/// Asks for pages of 2 MiB, where the system grants them on request: translating the addresses of
/// small pages takes nearly half of the time of a loop that reads memory once (two threads of an
/// AMD EPYC 9004: 24 GB/s with small pages, 43 with large ones). Memory that is too small has none.
inline void prefer_large_pages(void* memory, int64_t bytes) {
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t end = (begin + static_cast<uintptr_t>(bytes)) / kLargePage * kLargePage;
  if (first >= end) return;
  (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

/// Base of the backends whose device memory is host memory.
class HostBackend : public Backend {
 public:
  int64_t alignment() const override { return kHostAlignment; }
  void* allocate(int64_t bytes) override {
    void* memory = ::operator new (static_cast<size_t>(bytes),
                                   std::align_val_t{static_cast<size_t>(kHostAlignment)});
    prefer_large_pages(memory, bytes);
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return memory;
  }
  void release(void* memory) noexcept override {
    ::operator delete (memory, std::align_val_t{static_cast<size_t>(kHostAlignment)});
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  bool computes_in_host_memory() const override { return true; }
  void synchronize() override {}

  Status connect(std::span<Backend* const> ranks) override;
  Status join(std::span<Backend* const> ranks, const ProcessGroup& group) override;
  Communicator* communicator() override { return communicator_.get(); }

 protected:
  /// For prepare(): returns the kernel of an exchange, or nullptr for another op.
  std::unique_ptr<Kernel> prepare_exchange(const Graph& graph, const Node& node) {
    return make_host_exchange(communicator_.get(), graph, node);
  }

 private:
  static void take(Backend* rank, std::unique_ptr<HostCommunicator> communicator);

  std::unique_ptr<HostCommunicator> communicator_;
};

}  // namespace trainyard
