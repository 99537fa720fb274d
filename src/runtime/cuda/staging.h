// src/runtime/cuda/staging.h: copies to the GPU that neither wait for it nor keep it waiting.
//
// Bytes go into pinned memory, from there to the GPU on a stream of their own while the GPU still
// computes, and on the GPU to their place in the order of its work:
//
//   host ─memcpy─▶ pinned slot ─copy stream─▶ device slot ─main stream─▶ destination
//
// So the inputs of a step cross the bus during the step before it. A step with more input than all
// slots hold waits for the rest. Pieces that fit into one slot share it: they cross in one copy,
// and one kernel puts each in its place.
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
  /// Of a device with so much memory: 8 MiB, less below 8 GiB, where all slots together take one
  /// part in 128.
  static constexpr int64_t slot_bytes(int64_t memory_bytes) {
    constexpr int64_t kLeast = int64_t{1} << 20, kMost = int64_t{8} << 20;
    return std::clamp(memory_bytes / 1024 / kLeast * kLeast, kLeast, kMost);
  }
  /// Below this a copy goes from the pinned slot straight to its place: the detour costs more.
  static constexpr int64_t kDirectBytes = int64_t{64} << 10;

  /// Device memory and pinned memory of kSlots slots each. Throws std::bad_alloc.
  explicit Staging(const Device& device);
  /// Waits for copies that are under way.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// `host` is free again when it returns; `device` has the bytes for what is submitted to the
  /// device's stream from then on.
  void copy_to_device(void* device, std::span<const std::byte> host);
  /// The same of several pieces.
  void copy_to_device(std::span<const HostPiece> pieces);

 private:
  struct Slot {
    Event copied;    // out of the pinned part
    Event consumed;  // out of the device's part
  };
  /// The next slot, whose pinned part may be written.
  struct Place {
    Slot& slot;
    std::byte *pinned, *staged;
  };
  Place next_place();
  void copy_chunk(std::byte* device, std::span<const std::byte> host);
  /// How many of the pieces, from the first on, share a slot and a launch.
  size_t block_size(std::span<const HostPiece> pieces) const;
  void copy_block(std::span<const HostPiece> pieces);
  /// Brings the first bytes of a slot to its part on the device, for the main stream.
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
