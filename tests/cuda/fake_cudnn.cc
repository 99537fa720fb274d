// The functions of cuDNN that the backend calls. Descriptors store their attributes and check them
// as the library does: an attribute must belong to the descriptor and have its type and count,
// required attributes must be present, and shapes must fit. Plans compute convolutions from the
// tensors' strides by plain loops, and graphs of other operations one operation at a time
// (fake_cudnn_graph.h). See fake_cuda.h.
//
// Before the first allowed engine, the heuristic proposes the naive engine, which the backend must
// use last, one engine of each kind that is not allowed (those write NaN, or round as TF32 does),
// and one that makes a plan and fails when it runs. For the gradient of attention on compute
// capability 10, an engine exists that the heuristic does not propose, as in cuDNN 9.18. Some
// problems have no engine, so that tests cover all of the backend's fallbacks: a bias or
// results of another type than the operands, as in cuDNN 9.19 for an H100; asymmetric pads in F32
// and in gradients.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/fake_cudnn_graph.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using trainyard::testing::DnnOperation;
using trainyard::testing::DnnTensor;

bool has_engines = true, has_graph_engines = true;  // for convolutions, and for other graphs
bool has_wide_gradients = false, has_fast_engines = true;
bool heeds_nan = true, reads_workspace = false;
size_t dnn_version = CUDNN_VERSION;

thread_local std::string words;  // the newest refusal's message, until it is read

cudnnStatus_t refuse_in_words(cudnnStatus_t status, const std::string& why) {
  words = why;
  trainyard::testing::note_refusal(why);
  return status;
}

struct Value {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<int, Value> values;

  template <typename T>
  T get(int attribute, size_t i = 0) const {
    const auto it = values.find(attribute);
    if (it == values.end() || it->second.bytes.size() < (i + 1) * sizeof(T)) std::abort();
    T value;
    std::memcpy(&value, it->second.bytes.data() + i * sizeof(T), sizeof value);
    return value;
  }
  template <typename T>
  void put(int attribute, cudnnBackendAttributeType_t of, const T& value) {
    Value v{of, 1, std::vector<std::byte>(sizeof(T))};
    std::memcpy(v.bytes.data(), &value, sizeof value);
    values[attribute] = std::move(v);
  }
};

std::mutex living_mutex;
std::set<const void*> living;  // the existing descriptors

Descriptor* descriptor(const void* d) {
  const std::scoped_lock lock(living_mutex);
  if (!living.contains(d)) std::abort();  // used after it was destroyed
  return static_cast<Descriptor*>(const_cast<void*>(d));
}
const Descriptor& child(const Descriptor& d, int attribute, size_t i = 0) {
  return *descriptor(d.get<cudnnBackendDescriptor_t>(attribute, i));
}

/// An attribute of a descriptor: its type, and the smallest and largest number of values.
struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t least, most;
  bool required = true;
};
const Rule kRules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 1,
     /*required=*/false},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
     1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
     CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
     1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
     2, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2,
     2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2,
     2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
     2, 2},
#define OPERATION(KIND, NAME, X, W, Y)                                                            \
  {CUDNN_BACKEND_OPERATION_CONVOLUTION_##KIND##_DESCRIPTOR,                                       \
   CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},           \
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_##KIND##_DESCRIPTOR,                                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},       \
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_##KIND##_DESCRIPTOR,                                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},       \
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_##KIND##_DESCRIPTOR,                                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}, \
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_##KIND##_DESCRIPTOR,                                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},                  \
  {                                                                                               \
    CUDNN_BACKEND_OPERATION_CONVOLUTION_##KIND##_DESCRIPTOR,                                      \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_BETA, CUDNN_TYPE_FLOAT, 1, 1                    \
  }
    OPERATION(FORWARD, FORWARD, X, W, Y),
    OPERATION(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    OPERATION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
#undef OPERATION
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
     1},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
     1},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
     CUDNN_TYPE_NAN_PROPOGATION, 1, 1, /*required=*/false},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, 1,
     /*required=*/false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, /*required=*/false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, /*required=*/false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, /*required=*/false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, /*required=*/false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, /*required=*/false},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
     1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 64},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
     1, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
     1, 1},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
     1},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, 1},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 8},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
     1, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1,
     16},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
     CUDNN_TYPE_VOID_PTR, 1, 16},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
     1, 1, /*required=*/false},
};

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // float and enumerators
  }
}

struct Tensor : DnnTensor {
  explicit Tensor(const Descriptor& d) {
    id = d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    type = d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    alignment = d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    is_virtual = d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    by_value = d.values.contains(CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
               d.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    rank = d.values.at(CUDNN_ATTR_TENSOR_DIMENSIONS).count;
    for (size_t i = 0, from = 0; i < 4; ++i) {
      size[i] = rank == 3 && i == 1 ? 1 : d.get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, from);
      stride[i] = d.get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, from);
      if (rank == 4 || i != 0) ++from;
    }
  }
};

enum class Pass : uint8_t { kForward, kData, kWeights };

/// The graph of one convolution, read from its descriptors.
struct Problem {
  Pass pass;
  Tensor x, w, y;
  int64_t stride[2], dilation[2], before[2], behind[2];

  static Problem of(const Descriptor& operation) {
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return {operation,
                Pass::kForward,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC};
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return {operation,
                Pass::kData,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC};
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return {operation,
                Pass::kWeights,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC};
      default:
        std::abort();
    }
  }
  Problem(const Descriptor& d, Pass p, int image, int filter, int output, int convolution)
      : pass(p), x(child(d, image)), w(child(d, filter)), y(child(d, output)) {
    const Descriptor& c = child(d, convolution);
    for (size_t i = 0; i < 2; ++i) {
      stride[i] = c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
      dilation[i] = c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
      before[i] = c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
      behind[i] = c.get<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
    }
  }
  bool fits() const {
    bool yes = x.size[0] == y.size[0] && w.size[0] == y.size[1] && x.size[1] % w.size[1] == 0 &&
               y.size[1] % (x.size[1] / w.size[1]) == 0;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t span = (w.size[2 + i] - 1) * dilation[i] + 1;
      yes &= y.size[2 + i] == (x.size[2 + i] + before[i] + behind[i] - span) / stride[i] + 1;
    }
    return yes;
  }
  /// Calls f(n, k, p, q, channel of the image, channel of the group, h, w, r, s) for every product.
  template <typename F>
  void for_products(const F& f) const {
    const int64_t groups = x.size[1] / w.size[1], filters = y.size[1] / groups;
    for (int64_t n = 0; n < y.size[0]; ++n) {
      for (int64_t k = 0; k < y.size[1]; ++k) {
        for (int64_t p = 0; p < y.size[2]; ++p) {
          for (int64_t q = 0; q < y.size[3]; ++q) {
            for (int64_t c = 0; c < w.size[1]; ++c) {
              for (int64_t r = 0; r < w.size[2]; ++r) {
                for (int64_t s = 0; s < w.size[3]; ++s) {
                  const int64_t h = p * stride[0] - before[0] + r * dilation[0];
                  const int64_t v = q * stride[1] - before[1] + s * dilation[1];
                  if (h < 0 || h >= x.size[2] || v < 0 || v >= x.size[3]) continue;
                  f(y.at(n, k, p, q), x.at(n, k / filters * w.size[1] + c, h, v), w.at(k, c, r, s));
                }
              }
            }
          }
        }
      }
    }
  }
  const Tensor& result() const { return pass == Pass::kForward ? y : pass == Pass::kData ? x : w; }
};

/// An operation other than a convolution, read from its descriptors.
DnnOperation operation_of(const Descriptor& d) {
  using Kind = DnnOperation::Kind;
  DnnOperation o;
  const auto tensor = [&](int attribute) { return Tensor(child(d, attribute)); };
  const auto optional = [&](int attribute) -> std::optional<DnnTensor> {
    if (!d.values.contains(attribute)) return std::nullopt;
    return tensor(attribute);
  };
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      o.kind = Kind::kMatmul;
      o.x = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
      o.b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
      o.y = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const Descriptor& how = child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      o.kind = Kind::kPointwise;
      o.mode = how.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
      o.math = how.get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC);
      if (how.values.contains(CUDNN_ATTR_POINTWISE_AXIS)) {
        o.axis = how.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
      }
      o.x = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
      o.t = optional(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
      const bool is_gradient = o.mode == CUDNN_POINTWISE_GELU_BWD;
      o.b = optional(is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                                 : CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      o.y = tensor(is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                               : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      break;
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      o.kind = Kind::kReduce;
      o.reduction = child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                        .get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
      o.x = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
      o.y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
      break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      o.kind = Kind::kReshape;
      o.x = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
      o.y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
      break;
    default:
      std::abort();
  }
  return o;
}
std::vector<DnnOperation> operations_of(const Descriptor& graph) {
  std::vector<DnnOperation> operations;
  const Value& all = graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  for (size_t i = 0; i < static_cast<size_t>(all.count); ++i) {
    operations.push_back(operation_of(child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i)));
  }
  return operations;
}

/// The gradient has five products, attention itself has two.
bool is_attention_gradient(const std::vector<DnnOperation>& operations) {
  return std::ranges::count(operations, DnnOperation::Kind::kMatmul, &DnnOperation::kind) == 5;
}

bool is_convolution(const Descriptor& graph) {
  switch (child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS).type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return true;
    default:
      return false;
  }
}
const Descriptor& graph_of(const Descriptor& engine_config) {
  return child(engine_config, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}
int64_t operation_count(const Descriptor& graph) {
  return graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count;
}
cudnnPointwiseMode_t mode_of(const Descriptor& operation) {
  return child(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
      .get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
}

/// The operations applied to a convolution's sums: a bias, then ReLU.
struct ConvolutionEpilogue {
  bool has_bias = false, has_relu = false, keeps_nan = false, is_sound = true;
  std::vector<Tensor> bias, output;  // empty, or one of each
  ConvolutionEpilogue() = default;
  ConvolutionEpilogue(const Descriptor& graph, const Tensor& product)
      : has_bias(operation_count(graph) > 1) {
    if (!has_bias) return;
    const Descriptor& addition = child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, 1);
    const Tensor added_to(child(addition, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    bias.emplace_back(child(addition, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    output.emplace_back(child(addition, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    is_sound = mode_of(addition) == CUDNN_POINTWISE_ADD && added_to.is_virtual &&
               added_to.id == product.id;
    has_relu = operation_count(graph) > 2;
    if (!has_relu) return;
    const Descriptor& relu = child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, 2);
    const Descriptor& mode = child(relu, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const Tensor cut(child(relu, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    is_sound &=
        mode_of(relu) == CUDNN_POINTWISE_RELU_FWD && cut.is_virtual && cut.id == output[0].id;
    keeps_nan = heeds_nan && mode.values.contains(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) &&
                mode.get<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) ==
                    CUDNN_PROPAGATE_NAN;
    output[0] = Tensor(child(relu, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  }
  float apply(float sum) const {
    if (!has_relu || (std::isnan(sum) && keeps_nan)) return sum;
    return sum > 0 ? sum : 0.0f;
  }
};

/// Whether cuDNN has an engine for a graph of attention or of a single product. Source: cuDNN
/// Frontend, operations/Attention: the elements of a head are a multiple of 8, and there is no
/// gradient of one query and one key. cuDNN 9.19 has engines for a single product only if its
/// tensors have three dimensions, and for attention only if they have four.
bool has_attention_engine(const std::vector<DnnOperation>& operations) {
  const auto first =
      std::ranges::find(operations, DnnOperation::Kind::kMatmul, &DnnOperation::kind);
  if (first == operations.end()) return true;
  const auto products =
      std::ranges::count(operations, DnnOperation::Kind::kMatmul, &DnnOperation::kind);
  if (first->x.rank != (products == 1 ? 3 : 4)) return false;
  const bool is_gradient = is_attention_gradient(operations);
  return first->x.size[3] % 8 == 0 &&
         !(is_gradient && first->x.size[2] == 1 && first->b->size[3] == 1);
}

bool has_engine(const Descriptor& graph) {
  if (!is_convolution(graph)) {
    return has_graph_engines && trainyard::testing::has_bf16_and_tf32() &&
           has_attention_engine(operations_of(graph));
  }
  if (!has_engines) return false;
  const Problem p = Problem::of(child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS));
  const Tensor& operand = p.pass == Pass::kForward ? p.x : p.y;
  const bool half = operand.type != CUDNN_DATA_FLOAT;
  if (operand.type == CUDNN_DATA_BFLOAT16 && !trainyard::testing::has_bf16_and_tf32()) return false;
  const ConvolutionEpilogue epilogue(graph, p.y);
  if (epilogue.has_bias && epilogue.bias[0].type != operand.type) return false;
  const cudnnDataType_t made = (epilogue.has_bias ? epilogue.output[0] : p.result()).type;
  const bool wide = has_wide_gradients && p.pass == Pass::kWeights && made == CUDNN_DATA_FLOAT;
  if (made != operand.type && !wide) return false;
  const bool asymmetric = p.before[0] != p.behind[0] || p.before[1] != p.behind[1];
  return !asymmetric || (p.pass == Pass::kForward && half);
}

/// Engines by their number.
enum Engine : int64_t {
  kRandomOrder,  // not deterministic
  kTensorCore,   // TF32, where operands are F32
  kGreedy,       // needs an impossibly large workspace
  kUnwilling,    // refuses to make a plan
  kGood,
  kBackwards,   // as good, but sums from the last product to the first
  kNaive,       // as good as kGood, but its notes call it a last resort
  kIdle,        // makes a plan, and fails when it runs
  kUnproposed,  // for the gradient of attention on compute capability 10; called engine 5 there
  kEngines,
};
constexpr int64_t kUnproposedNumber = 5;
bool is_good(int64_t engine) { return engine >= kGood && engine != kIdle; }
int64_t workspace_of_engine(int64_t engine) {
  switch (engine) {
    case kGreedy:
      return int64_t{1} << 50;
    case kUnproposed:
      return 2048;
    case kBackwards:
      return 1024;
    default:
      return 512;
  }
}
/// The engine's index for set_algorithm_cost() (fake_cuda.h).
int64_t algorithm_of(int64_t engine) {
  return engine == kUnproposed ? 2 : engine == kBackwards ? 1 : 0;
}
/// The settings of an engine: types and values of knobs.
using Knobs = std::vector<std::pair<cudnnBackendKnobType_t, int64_t>>;
Knobs knobs_of(int64_t engine) {
  if (engine == kUnproposed) return {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
  return {{CUDNN_KNOB_TYPE_TILE_SIZE, 7}};
}
bool has_unproposed_engine(const Descriptor& graph) {
  int major = 0;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  return major == 10 && dnn_version >= 91800 && !is_convolution(graph) &&
         is_attention_gradient(operations_of(graph));
}
/// The engine of a configuration with these knobs; nothing if there is none. A restored
/// configuration must equal a proposed one, or be that of the engine that is not proposed.
std::optional<int64_t> engine_of(int64_t number, const Knobs& knobs, const Descriptor& graph) {
  if (number == kUnproposedNumber && knobs == knobs_of(kUnproposed) &&
      has_unproposed_engine(graph)) {
    return kUnproposed;
  }
  if (number >= kUnproposed || knobs != knobs_of(number)) return std::nullopt;
  return number;
}
/// Advances the clock by the cost of a convolution.
void spend_cost(const Problem& p, int64_t engine) {
  if (engine == kNaive) return;
  const bool wide = p.pass == Pass::kWeights && p.w.type != p.y.type;
  trainyard::testing::spend_algorithm_cost(static_cast<size_t>(wide ? 2 : algorithm_of(engine)));
}

cudnnStatus_t finalize(Descriptor& d) {
  for (const Rule& rule : kRules) {
    if (rule.of == d.type && rule.required && !d.values.contains(rule.name)) {
      return CUDNN_STATUS_BAD_PARAM;
    }
  }
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
      const Tensor t(d);
      if (std::ranges::any_of(t.size, [](int64_t n) { return n < 1; }) || t.alignment < 1 ||
          (t.alignment & (t.alignment - 1)) != 0) {
        return refuse_in_words(CUDNN_STATUS_BAD_PARAM,
                               "A tensor without elements, or an odd alignment");
      }
      break;
    }
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      if (!Problem::of(d).fits()) return CUDNN_STATUS_BAD_PARAM;
      break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      if (!fits(operation_of(d))) return CUDNN_STATUS_BAD_PARAM;
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      if (!has_engine(child(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))) {
        return CUDNN_STATUS_NOT_SUPPORTED;
      }
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: {
      const auto engine = d.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      if (engine < 0 || engine >= kUnproposed || !has_engine(graph_of(d)) ||
          (is_good(engine) && trainyard::testing::is_algorithm_refused(algorithm_of(engine)))) {
        return CUDNN_STATUS_NOT_SUPPORTED;
      }
      break;
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: {
      if (!d.values.contains(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) return CUDNN_STATUS_NOT_SUPPORTED;
      Knobs knobs;
      const int64_t count = d.values.at(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES).count;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const Descriptor& knob = child(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        knobs.emplace_back(knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
                           knob.get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
      }
      const Descriptor engine = child(d, CUDNN_ATTR_ENGINECFG_ENGINE);
      const auto known =
          engine_of(engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), knobs, graph_of(engine));
      if (!known.has_value()) return CUDNN_STATUS_NOT_SUPPORTED;
      d.values = engine.values;
      d.put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, *known);
      trainyard::testing::count_restored_algorithm();
      break;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Descriptor& config = child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      if (config.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == kUnwilling) {
        return CUDNN_STATUS_NOT_SUPPORTED;
      }
      break;
    }
    default:
      break;
  }
  d.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

/// Copies `values` into descriptors that the caller has created.
cudnnStatus_t fill(int64_t requested, int64_t* count, void* elements,
                   const std::vector<Descriptor>& values) {
  *count = static_cast<int64_t>(values.size());
  auto* out = static_cast<cudnnBackendDescriptor_t*>(elements);
  for (int64_t i = 0; i < std::min(requested, *count); ++i) {
    Descriptor* into = descriptor(out[i]);
    if (into->type != values[static_cast<size_t>(i)].type) return CUDNN_STATUS_BAD_PARAM;
    *into = values[static_cast<size_t>(i)];
  }
  return CUDNN_STATUS_SUCCESS;
}
template <typename T>
cudnnStatus_t fill(int64_t requested, int64_t* count, void* elements,
                   const std::vector<T>& values) {
  *count = static_cast<int64_t>(values.size());
  std::copy_n(values.begin(), std::min(requested, *count), static_cast<T*>(elements));
  return CUDNN_STATUS_SUCCESS;
}

std::vector<Descriptor> proposals(const Descriptor& heuristic) {
  std::vector<Descriptor> result;
  const bool convolves = is_convolution(child(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  for (const int64_t engine :
       {kNaive, kRandomOrder, kIdle, kTensorCore, kGreedy, kUnwilling, kGood, kBackwards}) {
    if (engine == kNaive ? !convolves : convolves && !has_fast_engines) continue;
    Descriptor config{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true, {}};
    config.put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, engine);
    config.put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               heuristic.get<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    result.push_back(config);
  }
  return result;
}

std::vector<cudnnBackendNumericalNote_t> notes_of(int64_t engine) {
  if (engine == kRandomOrder) return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  if (engine == kTensorCore) return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  if (engine == kNaive) return {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP};
  return {};
}

void compute(const Problem& p, bool is_good, bool backwards, bool tf32, const Tensor& to,
             const void* x, const void* w, const void* y, const ConvolutionEpilogue& epilogue,
             const void* bias) {
  void* const result = const_cast<void*>(p.pass == Pass::kForward ? y
                                         : p.pass == Pass::kData  ? x
                                                                  : w);
  const Tensor& made = p.result();
  std::map<int64_t, float> sums;
  for (int64_t a = 0; a < made.size[0]; ++a) {
    for (int64_t b = 0; b < made.size[1]; ++b) {
      for (int64_t c = 0; c < made.size[2]; ++c) {
        for (int64_t d = 0; d < made.size[3]; ++d) {
          sums[made.at(a, b, c, d)] =
              epilogue.has_bias ? epilogue.bias[0].read(bias, epilogue.bias[0].at(0, b, 0, 0))
                                : 0.0f;
        }
      }
    }
  }
  const auto read = [&](const Tensor& t, const void* data, int64_t at) {
    const float value = t.read(data, at);
    return tf32 ? trainyard::testing::to_tf32(value) : value;
  };
  const auto add = [&](int64_t y_at, int64_t x_at, int64_t w_at) {
    if (p.pass == Pass::kForward) sums[y_at] += read(p.x, x, x_at) * read(p.w, w, w_at);
    if (p.pass == Pass::kData) sums[x_at] += read(p.y, y, y_at) * read(p.w, w, w_at);
    if (p.pass == Pass::kWeights) sums[w_at] += read(p.y, y, y_at) * read(p.x, x, x_at);
  };
  if (backwards) {
    std::vector<std::array<int64_t, 3>> products;
    p.for_products([&](int64_t y_at, int64_t x_at, int64_t w_at) {
      products.push_back({y_at, x_at, w_at});
    });
    for (auto it = products.rbegin(); it != products.rend(); ++it)
      add((*it)[0], (*it)[1], (*it)[2]);
  } else {
    p.for_products(add);
  }
  for (const auto& [at, sum] : sums)
    to.write(result, at, is_good ? epilogue.apply(sum) : std::nanf(""));
}

/// The pointers passed to a plan. Checks each pointer that the plan uses; status() is the first
/// error.
class Pack {
 public:
  explicit Pack(const Descriptor& pack) : pack_(pack) {}

  /// The address of a tensor or a number; nullptr if it is invalid.
  const void* at(const DnnTensor& t) {
    const std::string name = "tensor " + std::to_string(t.id);
    const Value& ids = pack_.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (size_t i = 0; i < static_cast<size_t>(ids.count); ++i) {
      if (pack_.get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) != t.id) continue;
      const auto* data = pack_.get<const void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
      if (!t.by_value) return look(name, data, bytes_of(t), t.alignment);
      if (data == nullptr) note(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "The " + name + " is NULL");
      return data;
    }
    note(CUDNN_STATUS_BAD_PARAM, "The " + name + " was not given");
    return nullptr;
  }
  void* workspace(int64_t bytes) {
    if (bytes == 0) return nullptr;
    void* const data = pack_.values.contains(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                           ? pack_.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                           : nullptr;
    return const_cast<void*>(
        look("workspace", data, bytes, trainyard::testing::kWorkspaceAlignment));
  }
  cudnnStatus_t status() const { return status_; }

 private:
  static int64_t bytes_of(const DnnTensor& t) {
    int64_t last = 0;
    for (size_t i = 0; i < 4; ++i) last += (t.size[i] - 1) * t.stride[i];
    return (last + 1) * trainyard::kernels::cuda::element_bytes(t.format());
  }
  const void* look(const std::string& name, const void* data, int64_t bytes, int64_t alignment) {
    const std::string why = trainyard::testing::wrong_memory(name, data, bytes, alignment);
    if (why.empty()) return data;
    const bool misaligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment);
    note(data == nullptr ? CUDNN_STATUS_BAD_PARAM_NULL_POINTER
         : misaligned    ? CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER
                         : CUDNN_STATUS_BAD_PARAM,
         why);
    return nullptr;
  }
  void note(cudnnStatus_t status, const std::string& why) {
    if (status_ == CUDNN_STATUS_SUCCESS) status_ = refuse_in_words(status, why);
  }

  const Descriptor& pack_;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

/// Fills the workspace with NaN, since an engine must not read it uninitialised. Returns the old
/// value that a faulty engine would add to its result.
float fill_workspace(void* workspace, int64_t engine) {
  float found = 0;
  if (reads_workspace) std::memcpy(&found, workspace, sizeof found);
  std::memset(workspace, 0xFF, static_cast<size_t>(workspace_of_engine(engine)));
  return found;
}

/// The function that computes a graph without a convolution.
std::function<void()> graph_work(const Descriptor& graph, Pack& pack, int64_t engine,
                                 void* workspace) {
  const bool computes = is_good(engine) || engine == kTensorCore;
  std::map<int64_t, void*> memory;
  std::map<int64_t, float> numbers;  // copied now, since a recorded work keeps them
  std::vector<DnnTensor> results;
  const auto operations = operations_of(graph);
  const auto note = [&](const DnnTensor& t) {
    if (t.is_virtual) return;
    const void* const data = pack.at(t);
    if (!t.by_value) memory[t.id] = const_cast<void*>(data);
    if (t.by_value && data != nullptr) numbers[t.id] = t.read(data, 0);
  };
  for (const DnnOperation& o : operations) {
    note(o.x);
    if (o.b) note(*o.b);
    if (o.t) note(*o.t);
    note(o.y);
    if (!o.y.is_virtual) results.push_back(o.y);
  }
  return [=] {
    (void)fill_workspace(workspace, engine);
    trainyard::testing::spend_algorithm_cost(static_cast<size_t>(algorithm_of(engine)));
    trainyard::testing::compute(operations, memory, numbers);
    if (computes) return;
    for (const DnnTensor& t : results) t.write(memory.at(t.id), 0, std::nanf(""));
  };
}

}  // namespace

namespace trainyard::testing {
void set_convolution_engines(bool available) { has_engines = available; }
void set_wide_gradients(bool available) { has_wide_gradients = available; }
void set_fast_engines(bool available) { has_fast_engines = available; }
void set_relu_heeds_nan(bool heeds) { heeds_nan = heeds; }
bool relu_heeds_nan() { return heeds_nan; }
void set_dnn_version(size_t version) { dnn_version = version; }
void set_reads_workspace(bool reads) { reads_workspace = reads; }
void set_graph_engines(bool available) { has_graph_engines = available; }
}  // namespace trainyard::testing

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t) { return "a status"; }
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) message[std::exchange(words, "").copy(message, size - 1)] = '\0';
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion() { return dnn_version; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* d) {
  *d = new Descriptor{type, false, {}};
  const std::scoped_lock lock(living_mutex);
  living.insert(*d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  Descriptor* gone = descriptor(d);
  const std::scoped_lock lock(living_mutex);
  living.erase(d);
  delete gone;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) { return finalize(*descriptor(d)); }

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  Descriptor* d = descriptor(of);
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& r) { return r.of == d->type && r.name == name; });
  if (d->is_final || rule == std::end(kRules) || rule->type != type || count < rule->least ||
      count > rule->most) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  const auto* bytes = static_cast<const std::byte*>(elements);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      if (!descriptor(static_cast<const cudnnBackendDescriptor_t*>(elements)[i])->is_final) {
        return CUDNN_STATUS_BAD_PARAM;
      }
    }
  }
  const size_t size = static_cast<size_t>(count) * size_of(type);
  d->values[name] = {type, count, std::vector<std::byte>(bytes, bytes + size)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* elements) {
  const Descriptor* d = descriptor(of);
  if (!d->is_final) return CUDNN_STATUS_BAD_PARAM;
  const auto engine = [&] { return d->get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX); };
  const bool is_knob = d->type == CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    return fill(requested, count, elements, proposals(*d));
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    Descriptor e = *d;
    e.type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    return fill(requested, count, elements, std::vector<Descriptor>{e});
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::vector<Descriptor> knobs;
    for (const auto& [knob_type, value] : knobs_of(engine())) {
      Descriptor& knob = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, true);
      knob.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, knob_type);
      knob.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value);
    }
    return fill(requested, count, elements, knobs);
  }
  if (is_knob && name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE && type == CUDNN_TYPE_KNOB_TYPE) {
    return fill(requested, count, elements, std::vector{d->get<cudnnBackendKnobType_t>(name)});
  }
  if (is_knob && name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE && type == CUDNN_TYPE_INT64) {
    return fill(requested, count, elements, std::vector{d->get<int64_t>(name)});
  }
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64) {
    const int64_t number = engine() == kUnproposed ? kUnproposedNumber : engine();
    return fill(requested, count, elements, std::vector<int64_t>{number});
  }
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
    return fill(requested, count, elements, notes_of(engine()));
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
    const Descriptor& config = child(*d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return fill(requested, count, elements,
                std::vector<int64_t>{
                    workspace_of_engine(config.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX))});
  }
  return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Descriptor &p = *descriptor(plan), &v = *descriptor(pack);
  if (!p.is_final || !v.is_final) return CUDNN_STATUS_BAD_PARAM;
  const Descriptor& config = child(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto engine = config.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  const Descriptor& graph = graph_of(config);
  if (v.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count !=
      v.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count) {
    return refuse_in_words(CUDNN_STATUS_BAD_PARAM,
                           "The pack has more names than pointers, or fewer");
  }
  Pack given(v);
  void* const workspace = given.workspace(workspace_of_engine(engine));
  const int64_t algorithm = algorithm_of(engine);
  if (trainyard::testing::is_context_broken() || engine == kIdle ||
      (is_good(engine) && trainyard::testing::is_algorithm_broken(algorithm))) {
    return refuse_in_words(CUDNN_STATUS_EXECUTION_FAILED, "The engine does not run");
  }
  if (!is_convolution(graph)) {
    auto work = graph_work(graph, given, engine, workspace);
    if (given.status() != CUDNN_STATUS_SUCCESS) return given.status();
    trainyard::testing::submit_to_stream(handle->stream, trainyard::testing::WorkKind::kDnn,
                                         std::move(work));
    return CUDNN_STATUS_SUCCESS;
  }
  const Problem problem = Problem::of(child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS));
  const bool computes = is_good(engine) || engine == kTensorCore;
  const bool tf32 = engine == kTensorCore && problem.w.type == CUDNN_DATA_FLOAT;
  ConvolutionEpilogue epilogue(graph, problem.y);
  epilogue.keeps_nan &= !trainyard::testing::loses_nan(algorithm);
  if (!epilogue.is_sound) {
    return refuse_in_words(CUDNN_STATUS_BAD_PARAM,
                           "The operations behind the convolution do not follow it");
  }
  const Tensor to = epilogue.has_bias ? epilogue.output[0] : problem.result();
  const void* const bias = epilogue.has_bias ? given.at(epilogue.bias[0]) : nullptr;
  const void* const y = given.at(epilogue.has_bias ? to : problem.y);
  const void *x = given.at(problem.x), *w = given.at(problem.w);
  if (given.status() != CUDNN_STATUS_SUCCESS) return given.status();
  trainyard::testing::submit_to_stream(handle->stream, trainyard::testing::WorkKind::kDnn, [=] {
    const float found = fill_workspace(workspace, engine);
    spend_cost(problem, engine);
    compute(problem, computes, engine == kBackwards, tf32, to, x, w, y, epilogue, bias);
    if (!reads_workspace) return;
    void* const result = const_cast<void*>(problem.pass == Pass::kForward ? y
                                           : problem.pass == Pass::kData  ? x
                                                                          : w);
    to.write(result, 0, to.read(result, 0) + found);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
