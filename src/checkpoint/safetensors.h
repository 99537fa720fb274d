// src/checkpoint/safetensors.h: the safetensors format, read and written.
//
//   8 bytes   header length N, little-endian
//   N bytes   UTF-8 JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end)}, ...,
//             "__metadata__": {string: string}}, padded with spaces
//   the rest  the tensors' bytes, covered exactly by the ranges
//
// Source: the format description of the safetensors project. Limits: header at most 16 MiB.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/tensor/shape.h"

namespace trainyard {

inline constexpr size_t kSafetensorsHeaderBytesMax = size_t{16} << 20;

struct TensorView {
  std::string name;
  TensorType type;
  std::span<const std::byte> bytes;  // row-major, type.bytes() long
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Writes `path` (temporary file, fsync, rename, directory fsync). Tensors keep the given order;
/// data starts at a multiple of 8 bytes. Returns the SHA-256 of the file.
/// Refusals: MODEL_FILE_INVALID if the header passes its limit or a name is not UTF-8; errors of
/// `files`. A repeated name, or bytes that do not fit their type, is a fault.
Result<std::string> write_safetensors(Files& files, const std::filesystem::path& path,
                                      std::span<const TensorView> tensors,
                                      const SafetensorsMetadata& metadata);

/// The same, straight to `path`: for files inside a folder that is itself renamed when complete.
Result<std::string> write_safetensors_in_place(Files& files, const std::filesystem::path& path,
                                               std::span<const TensorView> tensors,
                                               const SafetensorsMetadata& metadata);

/// A file whose tensors are written later and in any order: its first bytes, and where the tensors'
/// bytes go. Refusals as of write_safetensors().
struct SafetensorsLayout {
  std::string prefix;
  std::vector<int64_t> offsets;  // by tensor, in the file
  int64_t bytes = 0;             // of the file
};
Result<SafetensorsLayout> lay_out_safetensors(
    std::span<const std::pair<std::string, TensorType>> tensors);

/// A mapped file. Everything in the header is checked before any tensor is handed out: no duplicate
/// keys, ranges that cover the buffer exactly, sizes that match. Refusal: MODEL_FILE_INVALID with
/// the broken `rule` (and `tensor`) in its metadata. Tensors are in the header's order; their bytes
/// are aligned only as far as the file's order makes them.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes);  // borrows `bytes`
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// The whole file, header included: what its digest covers.
  std::span<const std::byte> file_bytes() const { return bytes_; }

 private:
  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::vector<TensorView> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_, sorted by name
  SafetensorsMetadata metadata_;
};

}  // namespace trainyard
