#include "src/checkpoint/weights_file.h"

#include <cstring>

#include "src/base/half.h"
#include "src/checkpoint/safetensors_header.h"

namespace trainyard {
namespace {

float from_f32(float value) { return value; }
float from_f64(double value) { return static_cast<float>(value); }

// `bytes` need not be aligned.
template <typename T>
std::vector<float> widen(std::span<const std::byte> bytes, float (*one)(T)) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = one(value);
  }
  return values;
}

}  // namespace

bool converts_to_f32(std::string_view dtype) {
  return dtype == "F32" || dtype == "F64" || dtype == "F16" || dtype == "BF16";
}

std::vector<float> to_f32(std::string_view dtype, std::span<const std::byte> bytes) {
  if (dtype == "F64") return widen(bytes, from_f64);
  if (dtype == "F16") return widen(bytes, from_f16);
  if (dtype == "BF16") return widen(bytes, from_bf16);
  TRAINYARD_CHECK(dtype == "F32", "weights are of a float type");
  return widen(bytes, from_f32);
}

Result<WeightsFile> WeightsFile::parse(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(SafetensorsParts parts, split_safetensors(bytes));
  WeightsFile file;
  for (SafetensorsEntry& e : parts.header.entries) {
    file.tensors_.push_back({std::move(e.name), std::move(e.dtype), std::move(e.shape)});
    file.bytes_.push_back(parts.data.subspan(e.begin, e.end - e.begin));
  }
  return file;
}

Result<WeightsFile> WeightsFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  ASSIGN_OR_RETURN(WeightsFile file, parse(mapped.bytes()));
  file.file_ = std::move(mapped);
  return file;
}

}  // namespace trainyard
