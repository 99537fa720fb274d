// src/checkpoint/safetensors.h: reads and writes the safetensors format.
//
//   8 bytes   header length N, little-endian
//   N bytes   UTF-8 JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end)}, ...,
//             "__metadata__": {string: string}}, padded with spaces
//   the rest  the tensors' bytes, covered exactly by the ranges
//
// Source: the format description of the safetensors project. The header is limited to 16 MiB.
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

/// The data of files that are written begins at a multiple of this many bytes.
inline constexpr int64_t kSafetensorsAlignment = 8;

struct TensorView {
  std::string name;
  TensorType type;
  std::span<const std::byte> bytes;  // row-major, stored_bytes() long
  // Not kAsTyped: `type` is F32 and the bytes are numbers of 16 bits. Only checkpoints and imported
  // models have such tensors: parameters that are not trained (recipe.frozen_storage).
  Storage storage = Storage::kAsTyped;

  int64_t stored_bytes() const {
    return storage == Storage::kAsTyped ? type.bytes() : type.bytes() / 2;
  }
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Writes `path` durably and atomically (temporary file, fsync, rename, directory fsync). Tensors
/// keep the given order; data starts at a multiple of 8 bytes. Returns the SHA-256 of the file.
/// Errors: MODEL_FILE_INVALID if the header exceeds its limit or a name is not UTF-8; errors of
/// `files`. A duplicate name, or bytes that do not fit their type, fails a check.
Result<std::string> write_safetensors(Files& files, const std::filesystem::path& path,
                                      std::span<const TensorView> tensors,
                                      const SafetensorsMetadata& metadata);

/// Like write_safetensors(), but without a temporary file: for a file inside a folder that is
/// itself renamed when complete.
Result<std::string> write_safetensors_in_place(Files& files, const std::filesystem::path& path,
                                               std::span<const TensorView> tensors,
                                               const SafetensorsMetadata& metadata);

/// The layout of a file whose tensors are written later, in any order. `prefix` is everything
/// before the tensor data, which starts at a multiple of `alignment` bytes. Only the types and
/// names of `tensors` are used. Errors as of write_safetensors().
struct SafetensorsLayout {
  std::string prefix;
  std::vector<int64_t> offsets;  // position of each tensor's bytes in the file
  int64_t bytes = 0;             // size of the file
};
Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorView> tensors,
                                              int64_t alignment = kSafetensorsAlignment);

/// A mapped file. open() and parse() check the whole header: no duplicate keys, ranges that cover
/// the data exactly, sizes that match. Error: MODEL_FILE_INVALID with the broken `rule` (and
/// `tensor`) in its metadata. Tensors are in the header's order; the alignment of their bytes
/// depends on the file.
class SafetensorsFile {
 public:
  /// Tensors of 16-bit numbers are refused, except with `Halves::kAccepted`, for checkpoints and
  /// models.
  enum class Halves : uint8_t { kRefused, kAccepted };
  static Result<SafetensorsFile> open(const std::filesystem::path& path,
                                      Halves halves = Halves::kRefused);
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes,  // borrows `bytes`
                                       Halves halves = Halves::kRefused);
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// Returns the whole file, header included; its digest is computed over these bytes.
  std::span<const std::byte> file_bytes() const { return bytes_; }

 private:
  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::vector<TensorView> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_, sorted by name
  SafetensorsMetadata metadata_;
};

}  // namespace trainyard
