// src/checkpoint/weights_file.h: a safetensors file that another program may have written, with
// types that the engine does not compute in. Weights of any float type become F32.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/tensor/shape.h"

namespace trainyard {

/// Kernels can read a tensor in a mapped file if it begins at a multiple of this many bytes.
inline constexpr int64_t kMappedAlignment = 64;

struct FileTensor {
  std::string name;
  std::string dtype;  // type name of the format, such as "BF16"
  Shape shape;
  // Where its bytes begin in the file; kNoOffset: unknown, or in one of several files.
  static constexpr int64_t kNoOffset = -1;
  int64_t offset = kNoOffset;
};

/// Returns the storage of 16-bit numbers of type `dtype`, kAsTyped for any other type.
Storage half_storage(std::string_view dtype);
/// Returns whether to_f32() converts from `dtype`: F32, F64, F16, BF16.
bool converts_to_f32(std::string_view dtype);
/// Converts row-major bytes of type `dtype` to F32, rounding to nearest. F64 values beyond F32's
/// range become infinite.
std::vector<float> to_f32(std::string_view dtype, std::span<const std::byte> bytes);

/// Returns whether a path is that of an index, which lists the tensors of several files.
bool is_weights_index(const std::filesystem::path& path);

/// A mapped file whose header was checked like that of a SafetensorsFile; its tensors may be of any
/// type of the format. Or the files of an index (weights_index.h), whose tensors are one list.
class WeightsFile {
 public:
  static Result<WeightsFile> open(const std::filesystem::path& path);
  static Result<WeightsFile> parse(std::span<const std::byte> bytes);  // borrows `bytes`
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  /// Returns the bytes of tensors()[index].
  std::span<const std::byte> bytes(size_t index) const { return bytes_.at(index); }
  /// Takes the bytes of tensors()[index] out of this process's memory after they were read; they
  /// can be read again.
  void drop_pages(size_t index) const;
  /// Returns the whole file, in which FileTensor::offset counts; empty for an index.
  std::span<const std::byte> file_bytes() const { return file_bytes_; }

 private:
  static Result<WeightsFile> open_index(const std::filesystem::path& path);

  std::vector<MappedFile> files_;
  std::vector<FileTensor> tensors_;
  std::vector<std::span<const std::byte>> bytes_;
  std::span<const std::byte> file_bytes_;
};

}  // namespace trainyard
