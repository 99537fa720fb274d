#include "src/checkpoint/safetensors.h"

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/checkpoint/safetensors_header.h"

namespace trainyard {
namespace {

std::string_view dtype_of(const TensorView& t) {
  return t.storage == Storage::kBf16  ? "BF16"
         : t.storage == Storage::kF16 ? "F16"
                                      : name_of(t.type.dtype);
}

/// Returns everything before the tensor data: the header's length and the JSON, which is padded to
/// the alignment of the data.
Result<std::string> build_prefix(std::span<const TensorView> tensors,
                                 const SafetensorsMetadata& metadata,
                                 int64_t alignment = kSafetensorsAlignment) {
  // The JSON is built as text, since nlohmann's objects either sort names or search them linearly.
  std::string json = "{";
  std::vector<std::string_view> names;
  try {
    if (!metadata.empty()) json += "\"__metadata__\":" + nlohmann::json(metadata).dump();
    int64_t offset = 0;
    for (const TensorView& t : tensors) {
      TRAINYARD_CHECK(t.name != "__metadata__", "a tensor cannot be named __metadata__");
      names.push_back(t.name);
      const int64_t end = offset + t.stored_bytes();
      const nlohmann::json entry = {
          {"dtype", dtype_of(t)}, {"shape", t.type.shape.dims()}, {"data_offsets", {offset, end}}};
      if (json.size() > 1) json += ',';
      json += nlohmann::json(t.name).dump() + ":" + entry.dump();
      offset = end;
    }
  } catch (const nlohmann::json::type_error&) {
    return safetensors_error("bad_utf8", "", "a tensor name or a metadata value is not UTF-8");
  }
  json += '}';
  std::sort(names.begin(), names.end());
  TRAINYARD_CHECK(std::adjacent_find(names.begin(), names.end()) == names.end(),
                  "two tensors have the same name");
  pad_safetensors_header(json, alignment);
  if (json.size() > kSafetensorsHeaderBytesMax) {
    return safetensors_error("header_too_large", "",
                             "the header would have " + std::to_string(json.size()) +
                                 " bytes, at most " + std::to_string(kSafetensorsHeaderBytesMax) +
                                 " are accepted");
  }
  std::string prefix(kSafetensorsLengthBytes, '\0');
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    prefix[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return prefix + json;
}

}  // namespace

Result<std::string> write_safetensors_in_place(Files& files, const std::filesystem::path& path,
                                               std::span<const TensorView> tensors,
                                               const SafetensorsMetadata& metadata) {
  for (const TensorView& t : tensors) {
    TRAINYARD_CHECK(t.stored_bytes() == static_cast<int64_t>(t.bytes.size()),
                    "tensor " + t.name + " has bytes that do not fit its type");
  }
  ASSIGN_OR_RETURN(const std::string prefix, build_prefix(tensors, metadata));
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(prefix))};
  for (const TensorView& t : tensors) parts.push_back(t.bytes);
  // Writing and hashing take about equally long, so they run concurrently.
  std::future<std::string> digest = std::async(std::launch::async, [&] {
    Sha256 sha256;
    for (const auto& part : parts) sha256.update(part);
    return sha256.finish();
  });
  if (Status s = files.write_file(path, parts); !s.ok()) return std::move(s).error();
  return digest.get();
}

Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorView> tensors,
                                              int64_t alignment) {
  SafetensorsLayout layout;
  ASSIGN_OR_RETURN(layout.prefix, build_prefix(tensors, {}, alignment));
  layout.bytes = std::ssize(layout.prefix);
  for (const TensorView& t : tensors) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += t.stored_bytes();
  }
  return layout;
}

Result<std::string> write_safetensors(Files& files, const std::filesystem::path& path,
                                      std::span<const TensorView> tensors,
                                      const SafetensorsMetadata& metadata) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  Result<std::string> digest = write_safetensors_in_place(files, temporary, tensors, metadata);
  if (digest.ok()) {
    if (Status s = files.rename_durable(temporary, path); !s.ok()) digest = std::move(s).error();
  }
  if (!digest.ok()) (void)files.remove_all(temporary);
  return digest;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, Halves halves) {
  ASSIGN_OR_RETURN(SafetensorsParts parts, split_safetensors(bytes));
  SafetensorsFile file;
  file.bytes_ = bytes;
  file.metadata_ = std::move(parts.header.metadata);
  file.tensors_.reserve(parts.header.entries.size());
  for (SafetensorsEntry& e : parts.header.entries) {
    Storage storage = Storage::kAsTyped;
    if (halves == Halves::kAccepted) {
      storage = e.dtype == "BF16"  ? Storage::kBf16
                : e.dtype == "F16" ? Storage::kF16
                                   : Storage::kAsTyped;
    }
    const std::optional<DType> dtype =
        storage == Storage::kAsTyped ? find_dtype(e.dtype) : DType::kF32;
    if (!dtype) {
      return safetensors_error("dtype_unsupported", e.name,
                               "dtype " + e.dtype + " is not one of F32, F64, I32, I64, U8");
    }
    file.tensors_.push_back({std::move(e.name),
                             {std::move(e.shape), *dtype},
                             parts.data.subspan(e.begin, e.end - e.begin),
                             storage});
  }
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), size_t{0});
  std::sort(file.by_name_.begin(), file.by_name_.end(),
            [&](size_t a, size_t b) { return file.tensors_[a].name < file.tensors_[b].name; });
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path, Halves halves) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  ASSIGN_OR_RETURN(SafetensorsFile file, parse(mapped.bytes(), halves));
  file.file_ = std::move(mapped);
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](size_t i, std::string_view n) { return tensors_[i].name < n; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

}  // namespace trainyard
