// src/data/arrays/array_file.h: arrays from untrusted bytes: NumPy's NPY (versions 1.0 to 3.0) and
// NPZ, and safetensors.
//
// Booleans, whole numbers, floats of 16 to 64 bits, bfloat16 and texts of a fixed width, in either
// byte order, row-major or column-major. What NumPy would unpickle, structured types, complex
// numbers, dates and floats beyond 64 bits are refused by name. A header's sizes are checked
// against what the file can hold before memory is taken, and no byte may be left over. Sources:
// "NumPy Enhancement Proposal 1" and numpy.lib.format's description of the versions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/data/files/byte_source.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct ArrayType {
  enum class Kind : uint8_t { kBool, kInteger, kUnsigned, kFloat, kBfloat16, kBytes, kUnicode };
  Kind kind = Kind::kFloat;
  int64_t bytes = 4;  // of an element
  bool big_endian = false;

  bool text() const { return kind == Kind::kBytes || kind == Kind::kUnicode; }
  bool whole() const { return kind == Kind::kInteger || kind == Kind::kUnsigned; }
  bool u8() const { return kind == Kind::kUnsigned && bytes == 1; }
};

/// The first line of a NPY file, a Python dictionary. It is read by a parser of its own that knows
/// nothing but such a dictionary.
struct NpyHeader {
  ArrayType type;
  bool fortran_order = false;  // the first index runs fastest
  Shape shape;
};
/// Refusal: DATASET_INVALID.
Result<NpyHeader> parse_npy_header(std::string_view text, const std::string& what);

class Array {
 public:
  const ArrayType& type() const { return header_.type; }
  const Shape& shape() const { return header_.shape; }
  int64_t rows() const { return header_.shape[0]; }

  /// All elements in row-major order, numbers rounded to 32 bits; true is 1. Not of texts.
  std::vector<float> to_floats() const;
  /// The same of bytes (type().u8()), which are moved out where they stand so already.
  std::vector<uint8_t> take_bytes() &&;
  /// Of [N] or [N, 1], row `row` as text: numbers in their shortest form that reads back the same,
  /// "true" and "false", texts without the zeros behind them. DATASET_INVALID for a text that UTF-8
  /// cannot hold.
  Result<std::string> cell(int64_t row, const std::string& what) const;

 private:
  friend Result<Array> read_npy(ByteSource& source, const std::string& what);
  friend class ArrayFile;
  std::span<const uint8_t> bytes() const;

  NpyHeader header_;
  std::vector<uint8_t> owned_;
  std::shared_ptr<const MappedFile> mapped_;  // of safetensors: shared by a file's arrays
  std::span<const uint8_t> part_;             // of mapped_
};

/// "[12, 3]": the place of an element in row-major order.
std::string index_text(const Shape& shape, int64_t element);

/// The whole source is one array. DATASET_INVALID; RESOURCE_EXHAUSTED/DATASET_TOO_LARGE.
Result<Array> read_npy(ByteSource& source, const std::string& what);

/// The requested arrays of an NPZ or safetensors file.
class ArrayFile {
 public:
  /// Reads those of `names` that there are. Refuses the file as a whole if it is neither NPZ nor
  /// safetensors, and an array by its name.
  static Result<ArrayFile> read(const std::filesystem::path& path, const std::string& what,
                                std::span<const std::string> names);
  /// Of all arrays of the file, read or not, in its order.
  const std::vector<std::string>& all_names() const { return all_names_; }
  bool has(const std::string& name) const { return arrays_.contains(name); }
  /// Refuses, with the names that there are, one that is not there.
  Result<Array> take(const std::string& name);

 private:
  Status read_npz(const std::filesystem::path& path, std::span<const std::string> names);
  Status read_safetensors(const std::filesystem::path& path, std::span<const std::string> names);
  std::string place(const std::string& name) const;

  std::string what_;
  std::vector<std::string> all_names_;
  std::map<std::string, Array> arrays_;
};

}  // namespace trainyard
