// src/checkpoint/safetensors_header.h: the JSON header of a safetensors file, parsed from untrusted
// bytes and checked against the length of the data, before anything is done with the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct SafetensorsEntry {
  std::string name;
  TensorType type;
  uint64_t begin = 0;  // relative to the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the header's order, names unique
  std::map<std::string, std::string> metadata;
};

/// `rule` is the stable name of what is broken; `tensor` may be empty.
Error safetensors_error(std::string rule, std::string tensor, std::string message);

/// Parses the N header bytes. The entries cover [0, data_bytes) exactly.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

}  // namespace trainyard
