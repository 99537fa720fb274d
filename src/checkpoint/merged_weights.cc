#include "src/checkpoint/merged_weights.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/safetensors_header.h"

namespace trainyard {

Result<MergedWeights> MergedWeights::merge(WeightsFile file) {
  MergedWeights merged(std::move(file));
  const std::vector<FileTensor>& tensors = merged.file_.tensors();
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const size_t of_a = safetensors_dtype_bytes(tensors[a].dtype);
    const size_t of_b = safetensors_dtype_bytes(tensors[b].dtype);
    return of_a != of_b ? of_a > of_b : tensors[a].name < tensors[b].name;
  });
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end = 0;
  for (const size_t i : order) {
    const std::span<const std::byte> bytes = merged.file_.bytes(i);
    const int64_t begin = end;
    end += std::ssize(bytes);
    header[tensors[i].name] = {{"dtype", tensors[i].dtype},
                               {"shape", tensors[i].shape.dims()},
                               {"data_offsets", {begin, end}}};
    if (!bytes.empty()) merged.parts_.push_back({begin, bytes});
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kSafetensorsHeaderBytesMax) {
    return safetensors_error("header_too_large", "",
                             "the header of all files together has " + std::to_string(json.size()) +
                                 " bytes, at most " + std::to_string(kSafetensorsHeaderBytesMax) +
                                 " are accepted");
  }
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    merged.prefix_ += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  merged.prefix_ += json;
  for (Part& part : merged.parts_) part.begin += std::ssize(merged.prefix_);
  merged.size_ = std::ssize(merged.prefix_) + end;
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
