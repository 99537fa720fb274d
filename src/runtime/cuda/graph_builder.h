// src/runtime/cuda/graph_builder.h: builds cuDNN's graphs of products and elementwise functions.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda::dnn {

/// Collects the operations of a graph in the order in which they are added. Its tensors have kRank
/// dimensions: cuDNN's engines for attention need four, those for a single product three.
template <size_t kRank>
class GraphBuilder {
  using Tensor = cudnnBackendDescriptor_t;  // owned by the parts

 public:
  using Sizes = std::array<int64_t, kRank>;

  /// `parts` will own the descriptors. Tensors without memory are named from `first_virtual` on.
  GraphBuilder(std::vector<BackendDescriptor>& parts, int64_t first_virtual)
      : parts_(parts), next_(first_virtual) {}

  Tensor tensor(int64_t name, const Sizes& size, const Sizes& stride, cudnnDataType_t type) {
    return keep(dnn::make_tensor(name, size, stride, type));
  }
  /// Returns an F32 value for each query; in a part of a batch its address may have any alignment
  /// of a float.
  Tensor rows(int64_t name, const Sizes& size, const Sizes& stride) {
    return keep(dnn::make_tensor(name, size, stride, CUDNN_DATA_FLOAT, /*is_virtual=*/false,
                                 sizeof(float)));
  }
  Tensor number(int64_t name) { return keep(dnn::make_scalar(name)); }
  /// Returns a tensor between two operations, without memory.
  Tensor virtual_tensor(const Sizes& size, const Sizes& stride, cudnnDataType_t type) {
    return keep(dnn::make_tensor(next_++, size, stride, type, /*is_virtual=*/true));
  }
  Tensor virtual_tensor(const Sizes& size, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    Sizes stride;
    stride.back() = 1;
    for (size_t i = kRank - 1; i-- > 0;) stride[i] = stride[i + 1] * size[i + 1];
    return virtual_tensor(size, stride, type);
  }

  /// c = a b, over the last two dimensions.
  void matmul(Tensor a, Tensor b, Tensor c) {
    BackendDescriptor how = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(how, "a cuDNN product");
    BackendDescriptor o = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, {a});
    set(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, {b});
    set(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, {c});
    set(o, CUDNN_ATTR_OPERATION_MATMUL_DESC, {how.get()});
    keep(std::move(how));
    add(std::move(o), "a cuDNN product operation");
  }
  /// y = f(x), f(x, b), or a selection between x and b by t.
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor t, Tensor y,
                 cudnnDataType_t type = CUDNN_DATA_FLOAT, int64_t axis = -1) {
    BackendDescriptor how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, type);
    if (axis >= 0) set(how, CUDNN_ATTR_POINTWISE_AXIS, axis);
    finalize(how, "a cuDNN function");
    BackendDescriptor o = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {how.get()});
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x});
    if (b != nullptr) set(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {b});
    if (t != nullptr) set(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, {t});
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {y});
    keep(std::move(how));
    add(std::move(o), "a cuDNN pointwise operation");
  }
  /// dx = f'(x) dy, where `mode` names the gradient.
  void pointwise_gradient(cudnnPointwiseMode_t mode, Tensor x, Tensor dy, Tensor dx) {
    BackendDescriptor how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    finalize(how, "the gradient of a cuDNN function");
    BackendDescriptor o = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {how.get()});
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x});
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, {dy});
    set(o, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, {dx});
    keep(std::move(how));
    add(std::move(o), "the gradient of a cuDNN pointwise operation");
  }
  /// Reduces x over the dimensions that y lacks.
  void reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y) {
    BackendDescriptor how = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(how, CUDNN_ATTR_REDUCTION_OPERATOR, op);
    set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(how, "a cuDNN reduction");
    BackendDescriptor o = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, {x});
    set(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, {y});
    set(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, {how.get()});
    keep(std::move(how));
    add(std::move(o), "a cuDNN reduction operation");
  }
  /// Gives the same elements other sizes and strides.
  void reshape(Tensor x, Tensor y) {
    BackendDescriptor o = create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, {x});
    set(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, {y});
    add(std::move(o), "a cuDNN reshape operation");
  }
  BackendDescriptor graph(cudnnHandle_t handle) const {
    return dnn::make_graph(operations_, handle);
  }

 private:
  Tensor keep(BackendDescriptor d) {
    parts_.push_back(std::move(d));
    return parts_.back().get();
  }
  void add(BackendDescriptor operation, const char* what) {
    finalize(operation, what);
    operations_.push_back(keep(std::move(operation)));
  }

  std::vector<BackendDescriptor>& parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_;
};

}  // namespace trainyard::cuda::dnn
