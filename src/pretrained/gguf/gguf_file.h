// src/pretrained/gguf/gguf_file.h: reads the container of GGUF files, which programs around
// llama.cpp use: settings by name, and tensors. Versions 2 and 3, little endian.
//
//   "GGUF", version u32, number of tensors u64, number of settings u64
//   settings   key, type u32, value; texts are a length u64 and UTF-8; arrays are the type u32 and
//              the number u64 of their elements
//   tensors    name, number of dimensions u32, dimensions u64 (the one of neighbors first), type
//   u32,
//              offset u64 in the data
//   data       from the next multiple of general.alignment (default 32) on
//
// The bytes are not trusted: every count, length and offset is compared with the size of the file
// before it is used. Values refer to the file's bytes, so that no more memory is needed than the
// lists of settings and tensors.
//
// Source: the description of the format in the project ggml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/pretrained/gguf/ggml_types.h"
#include "src/tensor/shape.h"

namespace trainyard {

enum class GgufType : uint8_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 0;                // of an array's elements
  std::span<const std::byte> bytes;  // of a number; of a text, without its length; of all elements

  /// These return nothing for a value of another kind, and for a whole number beyond int64_t.
  std::optional<int64_t> integer() const;
  std::optional<double> real() const;  // a float or a whole number
  std::optional<bool> flag() const;
  std::optional<std::string_view> text() const;
  /// Returns the elements of an array as values of their own.
  std::vector<GgufValue> elements() const;
};

struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;
  Shape shape;  // row-major: neighbors in the last dimension
  std::span<const std::byte> bytes;

  int64_t row_length() const { return shape[shape.rank() - 1]; }
  int64_t rows() const { return shape.elements() / row_length(); }
};

/// Returns the error MODEL_FILE_INVALID for a field of a GGUF file: "FIELD: WHAT".
Error gguf_error(std::string_view field, const std::string& what);

class GgufFile {
 public:
  static constexpr uint64_t kTensorsMax = uint64_t{1} << 17, kSettingsMax = uint64_t{1} << 16;

  /// Errors: MODEL_FILE_INVALID names the field that is not valid; MODEL_UNSUPPORTED a tensor whose
  /// type cannot be read.
  static Result<GgufFile> open(const std::filesystem::path& path);
  static Result<GgufFile> parse(std::span<const std::byte> bytes);  // borrows `bytes`

  const std::map<std::string, GgufValue, std::less<>>& settings() const { return settings_; }
  const GgufValue* find(std::string_view key) const;
  /// In the file's order; names are unique.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;

  /// These return the value of a setting; nothing if it is absent, and an error that names the
  /// setting if it has another type.
  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  /// A whole number from 0 to `max`.
  Result<std::optional<int64_t>> index(std::string_view key, int64_t max) const;

 private:
  MappedFile mapped_;
  std::map<std::string, GgufValue, std::less<>> settings_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;  // indices into tensors_
};

/// Returns whether a path is that of a file that begins like a GGUF file.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace trainyard
