// tests/cuda/fake_cudnn_graph.h: operation graphs as the fake cuDNN computes them: one operation
// after the other, each whole, in F32, by plain loops over what its tensors say of themselves.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernels/cuda/view.h"

namespace trainyard::testing {

/// A tensor of a graph. A virtual one has no memory; one by value is a number of the host.
struct DnnTensor {
  int64_t id = 0;
  std::array<int64_t, 4> size{}, stride{};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t alignment = 1;  // of its address, bytes
  bool is_virtual = false, by_value = false;

  int64_t elements() const { return size[0] * size[1] * size[2] * size[3]; }
  int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3];
  }
  kernels::cuda::Format format() const;
  float read(const void* data, int64_t i) const;
  void write(void* data, int64_t i, float value) const;
};

struct DnnOperation {
  enum class Kind : uint8_t {
    kMatmul,     // y = x b, of the last two dimensions
    kPointwise,  // y = mode(x, b, t)
    kReduce,     // x over the dimensions that y lacks
    kReshape,    // y is x by other strides
  };
  Kind kind = Kind::kPointwise;
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t math = CUDNN_DATA_FLOAT;
  std::optional<int64_t> axis;
  DnnTensor x, y;
  std::optional<DnnTensor> b, t;
};

/// Whether the tensors' number, sizes and types are those that the operation takes.
bool fits(const DnnOperation& o);

/// `memory`: where the tensors are that are neither virtual nor numbers. A virtual tensor is read
/// behind the operation that makes it; the process ends otherwise.
void compute(const std::vector<DnnOperation>& operations, const std::map<int64_t, void*>& memory,
             const std::map<int64_t, float>& numbers);

}  // namespace trainyard::testing
