// src/checkpoint/safetensors_header.h: parses the JSON header of a safetensors file from untrusted
// bytes and checks it against the length of the data, before the data is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/tensor/shape.h"

namespace trainyard {

/// A file begins with the length of its header, a little-endian integer of this many bytes.
inline constexpr size_t kSafetensorsLengthBytes = 8;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // a type name of the format, such as "F32", "BF16" or "BOOL"
  Shape shape;
  uint64_t begin = 0;  // in bytes, relative to the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the header's order, names unique
  std::map<std::string, std::string> metadata;
};

/// Returns an error MODEL_FILE_INVALID. `rule` is the stable name of the broken rule; `tensor` may
/// be empty.
Error safetensors_error(std::string rule, std::string tensor, std::string message);

/// Returns the bytes per element; 0 for unknown types.
size_t safetensors_dtype_bytes(std::string_view dtype);

/// Parses the header's JSON. Checks that the entries cover [0, data_bytes) exactly.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

/// Appends spaces to the header's JSON, so that the data after it begins at a multiple of
/// `alignment` bytes.
void pad_safetensors_header(std::string& json, int64_t alignment);

/// A whole file, split into its parsed header and the data that the header's ranges refer to.
struct SafetensorsParts {
  SafetensorsHeader header;
  std::span<const std::byte> data;
};
Result<SafetensorsParts> split_safetensors(std::span<const std::byte> file);

}  // namespace trainyard
