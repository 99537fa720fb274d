// src/tensor/shape.h: static shapes, and the physical order of a tensor's elements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/tensor/dtype.h"

namespace trainyard {

/// Dimensions in logical order: images are [N, C, H, W] in every layout. Rank 0 is a scalar.
class Shape {
 public:
  static constexpr int64_t kElementsMax = int64_t{1}
                                          << 40;  // small enough that no product below overflows

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  int64_t operator[](int64_t i) const { return dims_.at(static_cast<size_t>(i)); }
  const std::vector<int64_t>& dims() const { return dims_; }
  bool operator==(const Shape&) const = default;

  /// Returns the product of the dimensions. Faults if a dimension is negative or the product
  /// exceeds kElementsMax: check shapes from user input with fits() first.
  int64_t elements() const {
    TRAINYARD_CHECK(fits(), "shape " + to_string() + " is out of range");
    int64_t n = 1;
    for (const int64_t d : dims_) n *= d;
    return n;
  }

  bool fits() const {
    int64_t n = 1;
    for (const int64_t d : dims_) {
      if (d < 0 || (d > 0 && n > kElementsMax / d)) return false;
      n *= d;
    }
    return true;
  }

  std::string to_string() const {
    std::string text = "[";
    for (size_t i = 0; i < dims_.size(); ++i) {
      if (i > 0) text += ", ";
      text += std::to_string(dims_[i]);
    }
    return text + "]";
  }

 private:
  std::vector<int64_t> dims_;
};

/// Physical order of a rank-4 activation. kChannelsLast stores [N, C, H, W] as N, H, W, C. Tensors
/// of other ranks, parameters, and the inputs and outputs of a program are row-major.
enum class Layout : uint8_t { kRowMajor, kChannelsLast };

/// Returns true if both layouts store the same bytes in the same order.
inline bool layouts_share_bytes(const Shape& s) {
  return s.rank() != 4 || s[1] <= 1 || s[2] * s[3] <= 1;
}

/// The storage of an F32 tensor's elements. kBf16 keeps the upper 16 bits: the same range with 8
/// significant bits. kF16 is IEEE half precision: 11 significant bits, up to 65,504. Only tensors
/// that a program computes may have 16 bits; parameters, state and program inputs are stored as
/// typed.
enum class Storage : uint8_t { kAsTyped, kBf16, kF16 };

struct TensorType {
  Shape shape;
  DType dtype = DType::kF32;
  bool operator==(const TensorType&) const = default;
  int64_t bytes() const { return shape.elements() * static_cast<int64_t>(size_of(dtype)); }
};

}  // namespace trainyard
