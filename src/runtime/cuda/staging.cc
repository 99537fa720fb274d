#include "src/runtime/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace trainyard::cuda {

Staging::Staging(const Device& device)
    : device_(device),
      slot_bytes_(slot_bytes(device.memory_bytes())),
      stream_(Device::make_stream()),
      pinned_(make_pinned(slot_bytes_ * static_cast<int64_t>(kSlots))),
      staged_(device.allocate(slot_bytes_ * static_cast<int64_t>(kSlots))) {
  for (Slot& s : slots_) {
    s.copied = Device::make_event();
    s.consumed = Device::make_event();
  }
}

Staging::~Staging() {
  (void)cudaStreamSynchronize(stream_.get());
  (void)cudaStreamSynchronize(device_.stream());
}

void Staging::copy_to_device(void* device, std::span<const std::byte> host) {
  auto* to = static_cast<std::byte*>(device);
  while (!host.empty()) {
    const size_t size = std::min(host.size(), static_cast<size_t>(slot_bytes_));
    copy_chunk(to, host.first(size));
    host = host.subspan(size);
    to += size;
  }
}

void Staging::copy_chunk(std::byte* device, std::span<const std::byte> host) {
  Slot& slot = slots_[next_];
  auto* const pinned = static_cast<std::byte*>(pinned_.get()) + next_ * slot_bytes_;
  auto* const staged = static_cast<std::byte*>(staged_.get()) + next_ * slot_bytes_;
  next_ = (next_ + 1) % kSlots;
  check(cudaEventSynchronize(slot.copied.get()), "waiting for a staged copy");
  std::memcpy(pinned, host.data(), host.size());
  if (static_cast<int64_t>(host.size()) < kDirectBytes) {
    check(cudaMemcpyAsync(device, pinned, host.size(), cudaMemcpyHostToDevice, device_.stream()),
          "copying to the GPU");
    check(cudaEventRecord(slot.copied.get(), device_.stream()), "cudaEventRecord");
    return;
  }
  check(cudaStreamWaitEvent(stream_.get(), slot.consumed.get(), 0), "cudaStreamWaitEvent");
  check(cudaMemcpyAsync(staged, pinned, host.size(), cudaMemcpyHostToDevice, stream_.get()),
        "copying to the GPU");
  check(cudaEventRecord(slot.copied.get(), stream_.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(device_.stream(), slot.copied.get(), 0), "cudaStreamWaitEvent");
  check(cudaMemcpyAsync(device, staged, host.size(), cudaMemcpyDeviceToDevice, device_.stream()),
        "placing a copy on the GPU");
  check(cudaEventRecord(slot.consumed.get(), device_.stream()), "cudaEventRecord");
}

}  // namespace trainyard::cuda
