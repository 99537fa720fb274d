// tests/cuda/fake_cudnn_graph.h: computes operation graphs for the fake cuDNN: one whole operation
// after the other, in F32, by plain loops over the described tensors.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernels/cuda/view.h"

namespace trainyard::testing {

/// A tensor of a graph. A virtual tensor has no memory; a tensor by value is a number in host
/// memory. One of three dimensions has a second one of size 1 here.
struct DnnTensor {
  int64_t id = 0, rank = 4;
  std::array<int64_t, 4> size{}, stride{};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t alignment = 1;  // alignment of its address, in bytes
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
    kMatmul,     // y = x b, over the last two dimensions
    kPointwise,  // y = mode(x, b, t); for a gradient, b is dy and y is dx
    kReduce,     // sum of x over the dimensions that y lacks
    kReshape,    // y is x with other strides
  };
  Kind kind = Kind::kPointwise;
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t math = CUDNN_DATA_FLOAT;
  std::optional<int64_t> axis;
  DnnTensor x, y;
  std::optional<DnnTensor> b, t;
};

/// Whether the operation accepts the number, sizes and types of its tensors.
bool fits(const DnnOperation& o);

/// `memory` has the addresses of the tensors that are neither virtual nor by value. A virtual
/// tensor must be written by an earlier operation before it is read; otherwise the process aborts.
void compute(const std::vector<DnnOperation>& operations, const std::map<int64_t, void*>& memory,
             const std::map<int64_t, float>& numbers);

}  // namespace trainyard::testing
