// src/data/arrays/array_file.h: reads arrays from untrusted bytes: NumPy's NPY (versions 1.0
// to 3.0) and NPZ, and safetensors.
//
// Supports booleans, whole numbers, floats of 16 to 64 bits, bfloat16 and texts of a fixed width,
// in either byte order, row-major or column-major. Refuses, with its name, any other type: objects
// that NumPy would unpickle, structured types, complex numbers, dates and floats beyond 64 bits. A
// header's sizes are checked against the size of the file before memory is allocated, and the file
// must have no further bytes. Sources: "NumPy Enhancement Proposal 1" and numpy.lib.format's
// description of the versions.
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
  int64_t bytes = 4;  // per element
  bool big_endian = false;

  bool text() const { return kind == Kind::kBytes || kind == Kind::kUnicode; }
  bool whole() const { return kind == Kind::kInteger || kind == Kind::kUnsigned; }
  bool u8() const { return kind == Kind::kUnsigned && bytes == 1; }
};

/// The first line of a NPY file, a Python dictionary, for which there is a special parser.
struct NpyHeader {
  ArrayType type;
  bool fortran_order = false;  // column-major
  Shape shape;
};
/// Parses the text of a header. `what` names the file in messages. Refusal: DATASET_INVALID.
Result<NpyHeader> parse_npy_header(std::string_view text, const std::string& what);

class Array {
 public:
  const ArrayType& type() const { return header_.type; }
  const Shape& shape() const { return header_.shape; }
  int64_t rows() const { return header_.shape[0]; }

  /// Returns all elements in row-major order, rounded to 32 bits; true is 1. Not for texts.
  std::vector<float> to_floats() const;
  /// Returns all elements of an array of bytes (type().u8()) in row-major order. They are moved
  /// instead of copied if they are owned and in this order already.
  std::vector<uint8_t> take_bytes() &&;
  /// Returns row `row` of an array [N] or [N, 1] as text: numbers in the shortest form that reads
  /// back the same, "true" and "false", texts without trailing zeros. DATASET_INVALID for a text
  /// that cannot be converted to UTF-8.
  Result<std::string> cell(int64_t row, const std::string& what) const;

 private:
  friend Result<Array> read_npy(ByteSource& source, const std::string& what);
  friend class ArrayFile;
  std::span<const uint8_t> bytes() const;

  NpyHeader header_;
  std::vector<uint8_t> owned_;
  std::shared_ptr<const MappedFile> mapped_;  // safetensors: shared by all arrays of the file
  std::span<const uint8_t> part_;             // the array's bytes in mapped_
};

/// Returns the indices of an element that is numbered in row-major order: "[12, 3]".
std::string index_text(const Shape& shape, int64_t element);

/// Reads a source that is one array. Refusals: DATASET_INVALID,
/// RESOURCE_EXHAUSTED/DATASET_TOO_LARGE.
Result<Array> read_npy(ByteSource& source, const std::string& what);

/// The requested arrays of an NPZ or safetensors file.
class ArrayFile {
 public:
  /// Reads those of the arrays `names` that the file has. Refuses a file that is neither NPZ nor
  /// safetensors. A refusal of an array contains its name.
  static Result<ArrayFile> read(const std::filesystem::path& path, const std::string& what,
                                std::span<const std::string> names);
  /// Returns the names of all arrays of the file, read or not, in the file's order.
  const std::vector<std::string>& all_names() const { return all_names_; }
  bool has(const std::string& name) const { return arrays_.contains(name); }
  /// Removes and returns an array. If the file does not have it, the error lists all_names().
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
