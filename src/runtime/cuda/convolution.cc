#include "src/runtime/cuda/convolution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/cuda/bias_relu.h"
#include "kernels/cuda/convert.h"
#include "kernels/movement.h"
#include "src/base/check.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using dnn::create;
using dnn::finalize;
using dnn::set;
using kernels::Box;
using kernels::ConvDims;
using kernels::ImageDims;
using kernels::ImageStrides;
using kernels::cuda::Format;
using kernels::cuda::In;
using kernels::cuda::Out;

ImageStrides strides_of(const ImageDims& d, bool channels_last) {
  return channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
}
ImageDims filter_dims(const ConvDims& d) {
  return {d.K, d.group_channels(), d.window.R, d.window.S};
}

BackendDescriptor make_tensor(int64_t name, const ImageDims& d, const ImageStrides& s,
                              cudnnDataType_t type, bool is_virtual = false) {
  return dnn::make_tensor(name, {d.N, d.C, d.H, d.W}, {s.n, s.c, s.h, s.w}, type, is_virtual);
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

/// The attributes of the three operations, which mean the same under other names.
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

bool is_asymmetric(const kernels::Window& w) {
  return w.pad_top != w.pad_bottom || w.pad_left != w.pad_right;
}

/// The same convolution of an image that has the larger part of asymmetric pads in it already.
ConvDims with_symmetric_pads(ConvDims d) {
  kernels::Window& w = d.window;
  const int64_t h = std::min(w.pad_top, w.pad_bottom), v = std::min(w.pad_left, w.pad_right);
  d.x.H += w.pad_top + w.pad_bottom - 2 * h;
  d.x.W += w.pad_left + w.pad_right - 2 * v;
  w.pad_top = w.pad_bottom = h;
  w.pad_left = w.pad_right = v;
  return d;
}

}  // namespace

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

namespace {

/// Everything that the choice of an engine depends on, and what it is timed with.
DnnProblem described(const ConvolutionProblem& p) {
  std::string key = "convolution";
  const auto add = [&](const char* name, std::initializer_list<int64_t> values) {
    add_numbers(key, name, values);
  };
  const ConvDims& d = p.dims;
  const kernels::Window& w = d.window;
  add("pass", {static_cast<int64_t>(p.pass)});
  add("image", {d.x.N, d.x.C, d.x.H, d.x.W});
  add("filters", {d.K, d.group_channels(), w.R, w.S});
  add("strides", {w.stride_h, w.stride_w});
  add("pads", {w.pad_top, w.pad_left, w.pad_bottom, w.pad_right});
  add("dilations", {w.dilation_h, w.dilation_w});
  key += p.channels_last ? " channels_last " : " row_major ";
  key += name_of(p.operands) + ">" + name_of(p.result);
  if (p.bias) key += p.relu ? " bias relu" : " bias";
  if (p.tf32) key += " tf32";
  add("workspace", {kConvolutionWorkspaceMax});
  const auto bytes = [&](int64_t elements, bool is_result) {
    return elements * element_bytes(is_result ? p.result : p.operands);
  };
  DnnProblem problem{
      std::move(key),
      {{ConvolutionGraph::kImage, bytes(d.x.elements(), p.pass == ConvolutionPass::kData)},
       {ConvolutionGraph::kFilter, bytes(d.weight_elements(), p.pass == ConvolutionPass::kWeights)},
       {ConvolutionGraph::kOutput, bytes(d.y().elements(), p.pass == ConvolutionPass::kForward)}}};
  if (p.bias) problem.tensors.push_back({ConvolutionGraph::kBias, bytes(d.K, false)});
  return problem;
}

}  // namespace

std::optional<ConvolutionPlan> ConvolutionPlan::find(const Device& device,
                                                     const ConvolutionProblem& problem) {
  try {
    ConvolutionGraph graph(problem, device.dnn());
    auto plan = DnnPlan::find(device, graph.graph(), {problem.operands, problem.tf32},
                              kConvolutionWorkspaceMax, described(problem));
    if (plan) return ConvolutionPlan(problem, std::move(graph), std::move(*plan));
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return std::nullopt;
}

void ConvolutionPlan::run(const void* image, const void* filter, const void* output,
                          const void* bias, void* workspace) const {
  constexpr std::array<int64_t, 4> kNames{ConvolutionGraph::kImage, ConvolutionGraph::kFilter,
                                          ConvolutionGraph::kOutput, ConvolutionGraph::kBias};
  const std::array<const void*, 4> pointers{image, filter, output, bias};
  const size_t count = problem_.bias ? 4 : 3;
  plan_.run(std::span(kNames).first(count), std::span(pointers).first(count), workspace);
}

bool ConvolutionPlan::keeps_nan(const Device& device) const {
  TRAINYARD_CHECK(problem_.bias, "NaN is put into a bias");
  const ConvDims& d = problem_.dims;
  const int64_t outputs = d.y().elements();
  const int64_t bytes =
      std::max(std::max(d.x.elements(), d.weight_elements()) * element_bytes(problem_.operands),
               outputs * element_bytes(problem_.result));
  const int64_t bias_bytes = d.K * element_bytes(problem_.operands);
  // One piece of memory for x, w and y: whatever is read there, a sum with NaN is NaN.
  const DeviceMemory tensors = device.allocate(bytes), bias = device.allocate(bias_bytes),
                     workspace = device.allocate(std::max<int64_t>(workspace_bytes(), 1));
  const auto set_bytes = [&](const DeviceMemory& memory, int value, int64_t count) {
    check(cudaMemsetAsync(memory.get(), value, static_cast<size_t>(count), device.stream()),
          "asking a cuDNN engine for its NaN");
  };
  set_bytes(tensors, 0, bytes);
  set_bytes(bias, 0xFF, bias_bytes);  // NaN in every format
  run(tensors.get(), tensors.get(), tensors.get(), bias.get(), workspace.get());
  const int64_t sample = std::min<int64_t>(outputs, 4096);
  std::vector<std::byte> made(static_cast<size_t>(sample * element_bytes(problem_.result)),
                              std::byte{0xFF});
  check(cudaMemcpyAsync(made.data(), tensors.get(), made.size(), cudaMemcpyDeviceToHost,
                        device.stream()),
        "reading a cuDNN engine's NaN");
  device.synchronize();
  const In y{made.data(), problem_.result};
  for (int64_t i = 0; i < sample; ++i) {
    if (!std::isnan(y[i])) return false;
  }
  return true;
}

namespace {

/// What both operands are brought to.
Format operands_of(const Convolution::Storage& s) { return s.a != Format::kF32 ? s.a : s.b; }

}  // namespace

Convolution::Convolution(const Device& device, const std::string& name, ConvolutionPass pass,
                         const ConvDims& dims, bool channels_last, Epilogue epilogue,
                         Storage storage)
    : device_(device),
      pass_(pass),
      dims_(dims),
      inner_(dims),
      channels_last_(channels_last),
      epilogue_(epilogue),
      storage_(storage) {
  const bool mixed = operands_of(storage) != storage.result;
  for (const bool padded : {false, true}) {
    if (padded && !is_asymmetric(dims.window)) continue;
    for (const bool as_operands : {false, true}) {
      if (as_operands && !mixed) continue;
      for (const bool fused : {true, false}) {
        if (fused && epilogue == Epilogue::kNone) continue;
        if (prepare({fused, as_operands, padded})) return;
      }
    }
  }
  const ImageDims y = dims.y();
  const kernels::Window& w = dims.window;
  const auto shape = [](std::initializer_list<int64_t> sizes) {
    std::string text;
    for (const int64_t s : sizes) text += (text.empty() ? "[" : ", ") + std::to_string(s);
    return text + "]";
  };
  throw CudaError(name + ": cuDNN has no engine for this convolution: image " +
                      shape({dims.x.N, dims.x.C, dims.x.H, dims.x.W}) + ", filters " +
                      shape({dims.K, dims.group_channels(), w.R, w.S}) + ", output " +
                      shape({y.N, y.C, y.H, y.W}) + ", strides " + shape({w.stride_h, w.stride_w}) +
                      ", pads " + shape({w.pad_top, w.pad_left, w.pad_bottom, w.pad_right}) +
                      ", dilations " + shape({w.dilation_h, w.dilation_w}) + ", group " +
                      std::to_string(dims.group) + ", " + name_of(operands_of(storage)),
                  CUDNN_STATUS_NOT_SUPPORTED, CudaFault::kProgram);
}

bool Convolution::prepare(const Way& way) {
  inner_ = way.padded ? with_symmetric_pads(dims_) : dims_;
  const Format operands = operands_of(storage_);
  const Format made = way.result_as_operands ? operands : storage_.result;
  const bool relu = way.fused && epilogue_ == Epilogue::kBiasRelu;
  plan_ = ConvolutionPlan::find(
      device_, {pass_, inner_, channels_last_, operands, made, way.fused, relu, storage_.tf32});
  if (!plan_ || (relu && !plan_->keeps_nan(device_))) return false;
  is_fused_ = way.fused;
  // The filter's order is the parameter's where the two are the same.
  const bool reorders =
      channels_last_ && dims_.window.R * dims_.window.S > 1 && dims_.group_channels() > 1;
  const int64_t image = inner_.x.elements(), filter = dims_.weight_elements();
  const int64_t output = dims_.y().elements();
  const bool a_narrows = operands != storage_.a, b_narrows = operands != storage_.b;
  const bool result_differs = made != storage_.result;
  workspace_bytes_ = 0;
  switch (pass_) {
    case ConvolutionPass::kForward:
      a_ = form(image, way.padded || a_narrows, operands);
      b_ = form(filter, reorders || b_narrows, operands);
      result_ = form(output, result_differs, made);
      break;
    case ConvolutionPass::kData:
      a_ = form(output, a_narrows, operands);
      b_ = form(filter, reorders || b_narrows, operands);
      result_ = form(image, way.padded || result_differs, made);
      break;
    case ConvolutionPass::kWeights:
      a_ = form(image, way.padded || a_narrows, operands);
      b_ = form(output, b_narrows, operands);
      result_ = form(filter, reorders || result_differs, made);
      break;
  }
  added_ = form(dims_.K, is_fused_ && operands != Format::kF32, operands);
  plan_at_ = workspace_bytes_;
  workspace_bytes_ += plan_->workspace_bytes();
  return true;
}

Convolution::Form Convolution::form(int64_t elements, bool is_needed, Format format) {
  if (!is_needed) return {-1, format};
  const Form f{workspace_bytes_, format};
  workspace_bytes_ += aligned(elements * element_bytes(format));
  return f;
}

/// Between an image of the op and the larger one of the plan, whichever way; whole if they are of
/// one size.
void Convolution::copy_image(const ImageDims& from, In x, const ImageDims& to, Out y) const {
  const ImageStrides xs = strides_of(from, channels_last_), ys = strides_of(to, channels_last_);
  const ImageDims d{from.N, from.C, std::min(from.H, to.H), std::min(from.W, to.W)};
  const kernels::Window &outer = dims_.window, &inner = inner_.window;
  const int64_t down = outer.pad_top - inner.pad_top, right = outer.pad_left - inner.pad_left;
  if (from.elements() > to.elements()) x = x + (down * xs.h + right * xs.w);
  if (from.elements() < to.elements()) y = y + (down * ys.h + right * ys.w);
  Box<2> box;
  box.append(d.N, {xs.n, ys.n});
  if (!channels_last_) box.append(d.C, {xs.c, ys.c});
  box.append(d.H, {xs.h, ys.h});
  box.append(d.W, {xs.w, ys.w});
  if (channels_last_) box.append(d.C, {xs.c, ys.c});
  kernels::cuda::copy(box, x, y, device_.stream());
}

/// Between the parameter's order and the plan's.
void Convolution::copy_filter(bool to_plan, In x, Out y) const {
  const ImageDims d = filter_dims(dims_);
  const ImageStrides plan = strides_of(d, channels_last_), own = ImageStrides::row_major(d);
  const ImageStrides &xs = to_plan ? own : plan, &ys = to_plan ? plan : own;
  Box<2> box;
  box.append(d.N, {xs.n, ys.n});
  if (!to_plan || !channels_last_) box.append(d.C, {xs.c, ys.c});
  box.append(d.H, {xs.h, ys.h});
  box.append(d.W, {xs.w, ys.w});
  if (to_plan && channels_last_) box.append(d.C, {xs.c, ys.c});
  kernels::cuda::copy(box, x, y, device_.stream());
}

void Convolution::run(In a, In b, const float* bias, Out result, void* workspace) const {
  auto* memory = static_cast<std::byte*>(workspace);
  const auto piece = [&](const Form& f) { return Out{memory + f.at, f.format}; };
  const ImageDims y = dims_.y();
  if (a_.at >= 0) {
    const Out to = piece(a_);
    if (pass_ == ConvolutionPass::kData) {
      copy_image(y, a, y, to);
    } else {
      if (inner_.x.elements() != dims_.x.elements()) {
        Box<2> whole;
        whole.append(inner_.x.elements(), {0, 1});
        kernels::cuda::zero(whole, to, device_.stream());
      }
      copy_image(dims_.x, a, inner_.x, to);
    }
    a = to;
  }
  if (b_.at >= 0) {
    const Out to = piece(b_);
    if (pass_ == ConvolutionPass::kWeights) {
      copy_image(y, b, y, to);
    } else {
      copy_filter(/*to_plan=*/true, b, to);
    }
    b = to;
  }
  const void* added = is_fused_ ? bias : nullptr;
  if (added_.at >= 0) {
    const Out to = piece(added_);
    kernels::cuda::convert(dims_.K, {bias}, to, device_.stream());
    added = to.data;
  }
  const Out made = result_.at >= 0 ? piece(result_) : result;
  void* const spare = memory == nullptr ? nullptr : memory + plan_at_;
  switch (pass_) {
    case ConvolutionPass::kForward:
      plan_->run(a.data, b.data, made.data, added, spare);
      break;
    case ConvolutionPass::kData:
      plan_->run(made.data, b.data, a.data, nullptr, spare);
      break;
    case ConvolutionPass::kWeights:
      plan_->run(a.data, made.data, b.data, nullptr, spare);
      break;
  }
  if (result_.at >= 0) {
    switch (pass_) {
      case ConvolutionPass::kForward:
        copy_image(y, made, y, result);
        break;
      case ConvolutionPass::kData:
        copy_image(inner_.x, made, dims_.x, result);
        break;
      case ConvolutionPass::kWeights:
        copy_filter(/*to_plan=*/false, made, result);
        break;
    }
  }
  if (is_fused_ || epilogue_ == Epilogue::kNone) return;
  if (epilogue_ == Epilogue::kBiasRelu) {
    kernels::cuda::bias_relu(y, channels_last_, bias, result, device_.stream());
  } else {
    add_image_bias(device_, y, strides_of(y, channels_last_), bias, result);
  }
}

void add_image_bias(const Device& device, const ImageDims& d, const ImageStrides& s,
                    const float* bias, Out y) {
  Box<3> box;
  box.append(d.N, {s.n, 0, s.n});
  if (s.is_channels_last(d)) {
    box.append(d.pixels(), {s.w, 0, s.w});
    box.append(d.C, {s.c, 1, s.c});
  } else {
    box.append(d.C, {s.c, 1, s.c});
    box.append(d.pixels(), {s.w, 0, s.w});
  }
  kernels::cuda::arithmetic<math::Add>(box, y, {bias}, y, device.stream());
}

}  // namespace trainyard::cuda
