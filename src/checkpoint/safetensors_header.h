// src/checkpoint/safetensors_header.h: the JSON header of a safetensors file, parsed from untrusted
// bytes and checked against the length of the data, before anything is done with the data.
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

/// A file begins with its header's length, as so many bytes.
inline constexpr size_t kSafetensorsLengthBytes = 8;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // one of the format's: "F32", "BF16", "BOOL"
  Shape shape;
  uint64_t begin = 0;  // relative to the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the header's order, names unique
  std::map<std::string, std::string> metadata;
};

/// `rule` is the stable name of what is broken; `tensor` may be empty.
Error safetensors_error(std::string rule, std::string tensor, std::string message);

/// Bytes of an element; 0 for unknown types.
size_t safetensors_dtype_bytes(std::string_view dtype);

/// Parses the N header bytes. The entries cover [0, data_bytes) exactly.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

/// A whole file's bytes: the header, and the data that its ranges are in.
struct SafetensorsParts {
  SafetensorsHeader header;
  std::span<const std::byte> data;
};
Result<SafetensorsParts> split_safetensors(std::span<const std::byte> file);

}  // namespace trainyard
