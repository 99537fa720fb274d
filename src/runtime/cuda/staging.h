// src/runtime/cuda/staging.h: copies to the GPU for which neither the host nor the GPU waits.
//
// Bytes are copied to pinned memory, from there to the GPU on a separate stream while the GPU still
// computes, and finally on the GPU to their destination, in the order of its work:
//
//   host ─memcpy─▶ pinned slot ─copy stream─▶ device slot ─main stream─▶ destination
//
// So the inputs of a step are transferred during the previous step. If a step has more input than
// all slots can store, the rest waits. Pieces that fit into one slot share it: they are transferred
// in one copy, and one kernel copies each to its destination.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "src/runtime/backend.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

class Staging {
 public:
  static constexpr size_t kSlots = 8;
  /// Bytes of a slot, for a device with this much memory: 8 MiB, or less below 8 GiB, so that all
  /// slots together take 1/128 of the memory.
  static constexpr int64_t slot_bytes(int64_t memory_bytes) {
    constexpr int64_t kLeast = int64_t{1} << 20, kMost = int64_t{8} << 20;
    return std::clamp(memory_bytes / 1024 / kLeast * kLeast, kLeast, kMost);
  }
  /// Smaller copies go directly from the pinned slot to their destination, since the detour takes
  /// longer.
  static constexpr int64_t kDirectBytes = int64_t{64} << 10;

  /// Allocates kSlots slots in device memory and in pinned memory. Throws std::bad_alloc.
  explicit Staging(const Device& device);
  /// Waits for copies that are under way.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// `host` may be reused after the call; `device` contains the bytes for all work submitted later
  /// to the device's stream.
  void copy_to_device(void* device, std::span<const std::byte> host);
  /// Copies several pieces.
  void copy_to_device(std::span<const HostPiece> pieces);

 private:
  struct Slot {
    Event copied;    // recorded when the pinned part may be reused
    Event consumed;  // recorded when the device part may be reused
  };
  /// The next slot; its pinned part may be written.
  struct Place {
    Slot& slot;
    std::byte *pinned, *staged;
  };
  Place next_place();
  void copy_chunk(std::byte* device, std::span<const std::byte> host);
  /// Returns the number of pieces, from the first on, that share a slot and a launch.
  size_t block_size(std::span<const HostPiece> pieces) const;
  void copy_block(std::span<const HostPiece> pieces);
  /// Copies the first `bytes` of a slot from its pinned part to its device part, before later work
  /// of the main stream.
  void bring_to_slot(const Place& place, int64_t bytes);

  const Device& device_;
  const int64_t slot_bytes_;
  Stream stream_;
  PinnedMemory pinned_;
  DeviceMemory staged_;
  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

}  // namespace trainyard::cuda
