#include "src/runtime/cuda/convolution_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/timing.h"

namespace trainyard::cuda {
namespace {

using dnn::create;
using dnn::finalize;
using dnn::set;
using kernels::ConvDims;
using kernels::ImageDims;
using kernels::ImageStrides;
using kernels::cuda::In;

BackendDescriptor make_tensor(int64_t name, const ImageDims& d, const ImageStrides& s,
                              cudnnDataType_t type, bool is_virtual = false) {
  return dnn::make_tensor<4>(name, {d.N, d.C, d.H, d.W}, {s.n, s.c, s.h, s.w}, type, is_virtual);
}

BackendDescriptor make_convolution(const kernels::Window& w) {
  using Pair = std::array<int64_t, 2>;
  BackendDescriptor c = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  set(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  set(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  set(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Pair{w.stride_h, w.stride_w});
  set(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, Pair{w.dilation_h, w.dilation_w});
  set(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Pair{w.pad_top, w.pad_left});
  set(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Pair{w.pad_bottom, w.pad_right});
  finalize(c, "a cuDNN convolution");
  return c;
}

/// Names of the attributes of the three operations, which have equal meanings.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t image, filter, output, convolution, alpha, beta;
};
OperationNames names_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      break;
    case ConvolutionPass::kData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionPass::kWeights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

// For partial sums that an engine adds afterwards, and for reordered filters.
constexpr int64_t kWorkspaceBesides = int64_t{32} << 20;

}  // namespace

ImageDims filter_dims(const ConvDims& d) {
  return {d.K, d.group_channels(), d.window.R, d.window.S};
}

ImageStrides strides_of(const ImageDims& d, bool channels_last) {
  return channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
}

int64_t workspace_max(const ConvolutionProblem& p, int64_t memory_bytes) {
  const auto bytes = [&](int64_t elements, ConvolutionPass made_by) {
    return elements * element_bytes(p.pass == made_by ? p.result : p.operands);
  };
  const int64_t operands = bytes(p.dims.x.elements(), ConvolutionPass::kData) +
                           bytes(p.dims.weight_elements(), ConvolutionPass::kWeights) +
                           bytes(p.dims.y().elements(), ConvolutionPass::kForward);
  return std::max(convolution_workspace_least(memory_bytes), operands + kWorkspaceBesides);
}

// The structured bindings list all members, so a new member that is missing here causes a compile
// error.
std::string key_of(const ConvolutionProblem& p, int64_t workspace, bool any_result) {
  const auto& [pass, dims, channels_last, operands, result, bias, relu, tf32] = p;
  const auto& [x, K, window, group] = dims;
  const auto& [R, S, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h,
               dilation_w] = window;
  std::string key = "convolution";
  const auto add = [&](const char* name, std::initializer_list<int64_t> values) {
    add_numbers(key, name, values);
  };
  add("pass", {static_cast<int64_t>(pass)});
  add("image", {x.N, x.C, x.H, x.W});
  add("filters", {K, x.C / group, R, S});
  add("strides", {stride_h, stride_w});
  add("pads", {pad_top, pad_left, pad_bottom, pad_right});
  add("dilations", {dilation_h, dilation_w});
  key += channels_last ? " channels_last " : " row_major ";
  key += any_result ? name_of(operands) : name_of(operands) + ">" + name_of(result);
  if (bias) key += relu ? " bias relu" : " bias";
  if (tf32) key += " tf32";
  add("workspace", {workspace});
  return key;
}

ConvolutionGraph::ConvolutionGraph(const ConvolutionProblem& p, cudnnHandle_t handle) {
  const ConvDims& d = p.dims;
  const ImageDims y = d.y(), w = filter_dims(d);
  const bool forward = p.pass == ConvolutionPass::kForward;
  const auto type = [&](bool is_result) {
    return dnn::data_type(is_result ? p.result : p.operands);
  };
  image_ = make_tensor(kImage, d.x, strides_of(d.x, p.channels_last),
                       type(p.pass == ConvolutionPass::kData));
  filter_ = make_tensor(kFilter, w, strides_of(w, p.channels_last),
                        type(p.pass == ConvolutionPass::kWeights));
  output_ = make_tensor(kOutput, y, strides_of(y, p.channels_last), type(forward));
  convolution_ = make_convolution(d.window);
  const auto make_between = [&](Name name) {
    return make_tensor(name, y, strides_of(y, p.channels_last), CUDNN_DATA_FLOAT,
                       /*is_virtual=*/true);
  };
  if (p.bias) {
    const ImageDims b{1, d.K, 1, 1};
    product_ = make_between(kProduct);
    bias_ = make_tensor(kBias, b, strides_of(b, p.channels_last), type(false));
  }
  if (p.relu) sum_ = make_between(kSum);
  const OperationNames names = names_of(p.pass);
  operation_ = create(names.type);
  set(operation_, names.image, {image_.get()});
  set(operation_, names.filter, {filter_.get()});
  set(operation_, names.output, {p.bias ? product_.get() : output_.get()});
  set(operation_, names.convolution, {convolution_.get()});
  set(operation_, names.alpha, 1.0f);
  set(operation_, names.beta, 0.0f);
  finalize(operation_, "a cuDNN convolution operation");
  if (!p.bias) {
    graph_ = dnn::make_graph({operation_.get()}, handle);
    return;
  }
  addition_ = make_pointwise(CUDNN_POINTWISE_ADD, product_, bias_, p.relu ? sum_ : output_);
  if (!p.relu) {
    graph_ = dnn::make_graph({operation_.get(), addition_.operation.get()}, handle);
    return;
  }
  relu_ = make_pointwise(CUDNN_POINTWISE_RELU_FWD, sum_, nullptr, output_);
  graph_ =
      dnn::make_graph({operation_.get(), addition_.operation.get(), relu_.operation.get()}, handle);
}

ConvolutionGraph::Pointwise ConvolutionGraph::make_pointwise(cudnnPointwiseMode_t mode,
                                                             const BackendDescriptor& x,
                                                             const BackendDescriptor& b,
                                                             const BackendDescriptor& y) {
  Pointwise p{create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
              create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)};
  set(p.mode, CUDNN_ATTR_POINTWISE_MODE, mode);
  set(p.mode, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    set(p.mode, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
  }
  finalize(p.mode, "a cuDNN function of elements");
  set(p.operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {p.mode.get()});
  set(p.operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x.get()});
  if (b) set(p.operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {b.get()});
  set(p.operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {y.get()});
  finalize(p.operation, "a cuDNN operation on elements");
  return p;
}

std::vector<EngineChoice> convolution_engines(const Device& device,
                                              const ConvolutionProblem& problem, Engines which) {
  try {
    const ConvolutionGraph graph(problem, device.dnn());
    return allowed_engines(graph.graph(), {problem.operands, problem.tf32}, which);
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return {};
}

std::optional<ConvolutionPlan> ConvolutionPlan::restore(const Device& device,
                                                        const ConvolutionProblem& problem,
                                                        const EngineChoice& choice) {
  try {
    ConvolutionGraph graph(problem, device.dnn());
    auto plan = DnnPlan::restore(device, graph.graph(), {problem.operands, problem.tf32},
                                 workspace_max(problem, device.memory_bytes()), choice);
    if (plan) return ConvolutionPlan(problem, std::move(graph), std::move(*plan));
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return std::nullopt;
}

void note_offer(const Device& device, const ConvolutionProblem& problem, Offer offer) {
  note_offer("cuDNN", std::string("convolution, bias") + (problem.relu ? ", relu" : ""),
             name_of(problem.operands) + " to " + name_of(problem.result),
             key_of(problem, workspace_max(problem, device.memory_bytes()), /*any_result=*/false),
             offer);
}

void ConvolutionPlan::run(const void* image, const void* filter, const void* output,
                          const void* bias, void* workspace) const {
  constexpr std::array<int64_t, 4> kNames{ConvolutionGraph::kImage, ConvolutionGraph::kFilter,
                                          ConvolutionGraph::kOutput, ConvolutionGraph::kBias};
  const std::array<const void*, 4> pointers{image, filter, output, bias};
  const size_t count = problem_.bias ? 4 : 3;
  plan_.run(std::span(kNames).first(count), std::span(pointers).first(count), workspace);
}

bool ConvolutionPlan::passes_trial(const Device& device) const {
  const std::string key =
      key_of(problem_, workspace_max(problem_, device.memory_bytes()), /*any_result=*/false);
  return device.test_once(key + " " + words_of(choice()), [&] {
    return cuda::passes_trial(device, /*results_matter=*/problem_.relu,
                              [&] { return try_out(device); });
  });
}

bool ConvolutionPlan::try_out(const Device& device) const {
  const ConvDims& d = problem_.dims;
  const int64_t outputs = d.y().elements();
  const int64_t bytes = std::max({d.x.elements(), d.weight_elements(), outputs}) *
                        std::max(element_bytes(problem_.operands), element_bytes(problem_.result));
  const int64_t bias_bytes = d.K * element_bytes(problem_.operands);
  // x, w and y share one memory: whatever x and w contain, a sum with a NaN bias is NaN.
  const DeviceMemory tensors = device.allocate(bytes), bias = device.allocate(bias_bytes),
                     workspace = device.allocate(workspace_bytes());
  const WaitsAtEnd waits(device);
  const auto set_bytes = [&](const DeviceMemory& memory, int value, int64_t count) {
    check(cudaMemsetAsync(memory.get(), value, static_cast<size_t>(count), device.stream()),
          "preparing the trial of a cuDNN engine");
  };
  set_bytes(tensors, 0, bytes);
  set_bytes(bias, 0xFF, bias_bytes);  // NaN in every format
  run(tensors.get(), tensors.get(), tensors.get(), bias.get(), workspace.get());
  if (!problem_.relu) return true;
  const int64_t sample = std::min<int64_t>(outputs, 4096);
  std::vector<std::byte> made(static_cast<size_t>(sample * element_bytes(problem_.result)),
                              std::byte{0xFF});
  check(cudaMemcpyAsync(made.data(), tensors.get(), made.size(), cudaMemcpyDeviceToHost,
                        device.stream()),
        "reading the result of a cuDNN engine's NaN test");
  device.synchronize();
  const In y{made.data(), problem_.result};
  for (int64_t i = 0; i < sample; ++i) {
    if (!std::isnan(y[i])) {
      note_offer(device, problem_, Offer::kLosesNan);
      return false;
    }
  }
  return true;
}

}  // namespace trainyard::cuda
