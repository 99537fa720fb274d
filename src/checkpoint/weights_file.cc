#include "src/checkpoint/weights_file.h"

#include <cstring>

#include "src/base/half.h"
#include "src/base/text.h"
#include "src/checkpoint/safetensors_header.h"
#include "src/checkpoint/weights_index.h"

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

Storage half_storage(std::string_view dtype) {
  return dtype == "BF16" ? Storage::kBf16 : dtype == "F16" ? Storage::kF16 : Storage::kAsTyped;
}

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
  file.file_bytes_ = bytes;
  const int64_t data = parts.data.data() - bytes.data();
  for (SafetensorsEntry& e : parts.header.entries) {
    file.tensors_.push_back({std::move(e.name), std::move(e.dtype), std::move(e.shape),
                             data + static_cast<int64_t>(e.begin)});
    file.bytes_.push_back(parts.data.subspan(e.begin, e.end - e.begin));
  }
  return file;
}

bool is_weights_index(const std::filesystem::path& path) {
  return path.filename().string().ends_with(".safetensors.index.json");
}

Result<WeightsFile> WeightsFile::open(const std::filesystem::path& path) {
  if (is_weights_index(path)) return open_index(path);
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  ASSIGN_OR_RETURN(WeightsFile file, parse(mapped.bytes()));
  file.files_.push_back(std::move(mapped));
  return file;
}

void WeightsFile::drop_pages(size_t index) const {
  const std::span<const std::byte> part = bytes_.at(index);
  for (const MappedFile& file : files_) {
    const std::span<const std::byte> all = file.bytes();
    if (part.data() >= all.data() && part.data() < all.data() + all.size()) file.drop_pages(part);
  }
}

Result<WeightsFile> WeightsFile::open_index(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const WeightsIndex index, WeightsIndex::read(path));
  WeightsFile all;
  std::vector<std::string> names;
  std::vector<size_t> shards;  // the shard of each tensor
  for (size_t i = 0; i < index.files.size(); ++i) {
    const std::string& name = index.files[i];
    Result<WeightsFile> shard = open(path.parent_path() / name);
    if (!shard.ok()) {
      Error error = std::move(shard).error();
      error.message =
          path.filename().string() + " names the file " + quoted_value(name) + ": " + error.message;
      return error;
    }
    for (size_t t = 0; t < shard->tensors_.size(); ++t) {
      names.push_back(shard->tensors_[t].name);
      all.tensors_.push_back(std::move(shard->tensors_[t]));
      all.tensors_.back().offset = FileTensor::kNoOffset;
      all.bytes_.push_back(shard->bytes_[t]);
      shards.push_back(i);
    }
    all.files_.push_back(std::move(shard->files_.front()));
  }
  int64_t bytes = 0;
  for (const std::span<const std::byte> tensor : all.bytes_) bytes += std::ssize(tensor);
  if (Status s = index.check(names, shards, bytes); !s.ok()) return std::move(s).error();
  return all;
}

}  // namespace trainyard
