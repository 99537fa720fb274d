// src/pretrained/gguf/ggml_types.h: the types of tensors in GGUF files. Quantized types store a
// row as blocks of 32 or 256 small whole numbers q with shared scales d and offsets m in F16:
//
//   Q8_0        d * q                         blocks of 32, q of 8 bits
//   Q4_0, Q5_0  d * (q - 8), d * (q - 16)     blocks of 32, q of 4 or 5 bits
//   Q4_1, Q5_1  d * q + m                     blocks of 32
//   Q4_K, Q5_K  d * s[j] * q - m * t[j]       blocks of 256; s and t are 6 bits for each 32 numbers
//   Q6_K        d * s[j] * (q - 32)           blocks of 256; s is 8 bits for each 16 numbers
//
// A product of these has at most 24 significant bits, so it is exact in F32. Only the sum of Q4_1,
// Q5_1, Q4_K and Q5_K is rounded, once.
//
// Source: the description of ggml's block formats in the project llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

struct GgmlType {
  uint32_t id;
  std::string_view name;
  int64_t block;  // numbers in a block
  int64_t bytes;  // of a block
  void (*widen_block)(const std::byte* block, float* out);
};

/// Returns null if the type cannot be read.
const GgmlType* find_ggml_type(uint32_t id);
/// "Q4_K"; the number of a type that is not known.
std::string ggml_type_name(uint32_t id);
/// "F32, F16, BF16, ...": the types that can be read.
std::string readable_ggml_types();

/// Converts whole blocks to F32. `out` has as many numbers as the blocks.
void widen_blocks(const GgmlType& type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace trainyard
