// src/pretrained/gguf/gguf_tensors.h: the tensors of a GGUF file as those of the library's weights:
// by its names, in its order, with the exact numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/models/families/family.h"
#include "src/pretrained/gguf/gguf_config.h"
#include "src/pretrained/gguf/gguf_file.h"

namespace trainyard {

/// A tensor of the library and where its numbers are.
struct MappedTensor {
  enum class Order : uint8_t {
    kSame,
    kPaired,     // within each head, row 2 * i + j is here row j * head_dim / 2 + i
    kTransposed  // rows are columns
  };
  std::string name;
  Shape shape;
  const GgufTensor* source = nullptr;
  Order order = Order::kSame;
  int64_t head_dim = 0;  // of kPaired
};

/// Returns a tensor for each one of the model. Errors: MODEL_FILE_INVALID names a tensor of the
/// file that is missing or has another shape, MODEL_UNSUPPORTED one that the model does not have.
/// Borrows the file.
Result<std::vector<MappedTensor>> map_tensors(const GgufFile& file,
                                              const GgufArchitecture& architecture,
                                              const LanguageModel& model);

/// Reads the numbers of a tensor in the library's order.
class TensorNumbers {
 public:
  explicit TensorNumbers(const MappedTensor& tensor);

  /// A row is the last dimension. A tensor with one dimension is one row.
  int64_t rows() const { return rows_; }
  int64_t row_length() const { return row_length_; }
  void read_row(int64_t row, std::span<float> out) const;

 private:
  void read_source_row(int64_t row, std::span<float> out) const;

  const MappedTensor& tensor_;
  int64_t rows_, row_length_;
  std::vector<float> whole_;  // the source of a transposed tensor
};

/// Returns the narrowest of BF16, F16 and F32 that has all numbers of the tensor exactly.
std::string narrowest_dtype(const MappedTensor& tensor);

/// Appends the numbers, which the type must have exactly, as the safetensors format stores them.
void append_numbers(std::span<const float> numbers, std::string_view dtype, std::string& out);

}  // namespace trainyard
