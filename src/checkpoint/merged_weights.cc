#include "src/checkpoint/merged_weights.h"

#include <algorithm>

#include "src/checkpoint/weights_layout.h"

namespace trainyard {

bool needs_alignment(const WeightsFile& file) {
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const FileTensor& t = file.tensors()[i];
    if (half_storage(t.dtype) != Storage::kAsTyped && t.offset % kMappedAlignment != 0 &&
        std::ssize(file.bytes(i)) % kMappedAlignment == 0) {
      return true;
    }
  }
  return false;
}

Result<MergedWeights> MergedWeights::merge(WeightsFile file) {
  MergedWeights merged(std::move(file));
  ASSIGN_OR_RETURN(WeightsLayout layout, lay_out_weights(merged.file_.tensors()));
  for (const size_t i : layout.order) {
    const std::span<const std::byte> bytes = merged.file_.bytes(i);
    if (!bytes.empty()) merged.parts_.push_back({layout.offsets[i], bytes});
  }
  merged.prefix_ = std::move(layout.prefix);
  merged.size_ = layout.bytes;
  return merged;
}

void MergedWeights::read(int64_t offset, int64_t count, std::string& out) const {
  const int64_t end = offset + count;
  if (const int64_t header_end = std::min(end, std::ssize(prefix_)); offset < header_end) {
    out.append(prefix_, static_cast<size_t>(offset), static_cast<size_t>(header_end - offset));
    offset = header_end;
  }
  auto part = std::ranges::upper_bound(parts_, offset, {}, &Part::begin);
  if (part != parts_.begin()) --part;
  for (; offset < end && part != parts_.end(); ++part) {
    const int64_t inside = offset - part->begin;
    const int64_t taken = std::min(end - offset, std::ssize(part->bytes) - inside);
    if (taken <= 0) continue;
    out.append(reinterpret_cast<const char*>(part->bytes.data()) + inside,
               static_cast<size_t>(taken));
    offset += taken;
  }
}

}  // namespace trainyard
