// src/tensor/dtype.h: element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainyard {

/// The names are those of safetensors. F64 is for gradient checks, I32 for labels, U8 for stored
/// images.
enum class DType : uint8_t { kF32, kF64, kI32, kI64, kU8 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::kF32:
      return "F32";
    case DType::kF64:
      return "F64";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

constexpr std::optional<DType> find_dtype(std::string_view name) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    if (name_of(t) == name) return t;
  }
  return std::nullopt;
}

constexpr bool is_float(DType t) { return t == DType::kF32 || t == DType::kF64; }

}  // namespace trainyard
