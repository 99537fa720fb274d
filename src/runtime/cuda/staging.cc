#include "src/runtime/cuda/staging.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/alignment.h"
#include "kernels/copy_pieces.h"

namespace trainyard::cuda {
namespace {

constexpr int64_t kPieceAlignment = 16;  // alignment of pieces in a slot, in bytes

}  // namespace

Staging::Staging(const Device& device)
    : device_(device),
      slot_bytes_(slot_bytes(device.memory_bytes())),
      stream_(Device::make_stream()),
      pinned_(make_pinned(slot_bytes_ * static_cast<int64_t>(kSlots))),
      staged_(device.allocate(slot_bytes_ * static_cast<int64_t>(kSlots))) {
  for (Slot& s : slots_) {
    s.copied = device.make_host_event();
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

void Staging::copy_to_device(std::span<const HostPiece> pieces) {
  while (!pieces.empty()) {
    const size_t count = block_size(pieces);
    if (count > 1) {
      copy_block(pieces.first(count));
    } else {
      const HostPiece& piece = pieces.front();
      copy_to_device(piece.device,
                     {static_cast<const std::byte*>(piece.host), static_cast<size_t>(piece.bytes)});
    }
    pieces = pieces.subspan(std::max<size_t>(count, 1));
  }
}

Staging::Place Staging::next_place() {
  const Place place{slots_[next_], static_cast<std::byte*>(pinned_.get()) + next_ * slot_bytes_,
                    static_cast<std::byte*>(staged_.get()) + next_ * slot_bytes_};
  next_ = (next_ + 1) % kSlots;
  check(cudaEventSynchronize(place.slot.copied.get()), "waiting for a staged copy");
  return place;
}

void Staging::copy_chunk(std::byte* device, std::span<const std::byte> host) {
  const Place place = next_place();
  const auto bytes = std::ssize(host);
  std::memcpy(place.pinned, host.data(), host.size());
  if (bytes < kDirectBytes) {
    check(cudaMemcpyAsync(device, place.pinned, host.size(), cudaMemcpyHostToDevice,
                          device_.stream()),
          "copying to the GPU");
    check(cudaEventRecord(place.slot.copied.get(), device_.stream()), "cudaEventRecord");
    return;
  }
  bring_to_slot(place, bytes);
  check(cudaMemcpyAsync(device, place.staged, host.size(), cudaMemcpyDeviceToDevice,
                        device_.stream()),
        "placing a copy on the GPU");
  check(cudaEventRecord(place.slot.consumed.get(), device_.stream()), "cudaEventRecord");
}

size_t Staging::block_size(std::span<const HostPiece> pieces) const {
  size_t count = 0;
  int64_t bytes = 0;
  while (count < std::min(pieces.size(), kernels::kCopyPiecesMax)) {
    bytes += round_up(pieces[count].bytes, kPieceAlignment);
    if (bytes > slot_bytes_) break;
    ++count;
  }
  return count;
}

void Staging::copy_block(std::span<const HostPiece> pieces) {
  const Place place = next_place();
  std::array<kernels::CopyPiece, kernels::kCopyPiecesMax> copies;
  int64_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const HostPiece& piece = pieces[i];
    const int64_t room = round_up(piece.bytes, kPieceAlignment);
    std::memcpy(place.pinned + bytes, piece.host, static_cast<size_t>(piece.bytes));
    std::memset(place.pinned + bytes + piece.bytes, 0, static_cast<size_t>(room - piece.bytes));
    copies[i] = {piece.device, place.staged + bytes, (piece.bytes + 3) / 4};
    bytes += room;
  }
  bring_to_slot(place, bytes);
  kernels::cuda::copy_pieces(std::span(copies).first(pieces.size()), device_.stream());
  check(cudaGetLastError(), "placing what a step reads on the GPU");
  check(cudaEventRecord(place.slot.consumed.get(), device_.stream()), "cudaEventRecord");
}

void Staging::bring_to_slot(const Place& place, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (bytes < kDirectBytes) {  // a copy on a separate stream would take longer
    check(
        cudaMemcpyAsync(place.staged, place.pinned, size, cudaMemcpyHostToDevice, device_.stream()),
        "copying to the GPU");
    check(cudaEventRecord(place.slot.copied.get(), device_.stream()), "cudaEventRecord");
    return;
  }
  check(cudaStreamWaitEvent(stream_.get(), place.slot.consumed.get(), 0), "cudaStreamWaitEvent");
  check(cudaMemcpyAsync(place.staged, place.pinned, size, cudaMemcpyHostToDevice, stream_.get()),
        "copying to the GPU");
  check(cudaEventRecord(place.slot.copied.get(), stream_.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(device_.stream(), place.slot.copied.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace trainyard::cuda
