#include "src/runtime/cuda/conv_algorithms.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "kernels/arithmetic.h"
#include "kernels/cuda/bias_relu.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/direct_conv.h"
#include "kernels/movement.h"
#include "src/base/check.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/timing.h"

namespace trainyard::cuda {
namespace {

using kernels::Box;
using kernels::ConvDims;
using kernels::ImageDims;
using kernels::ImageStrides;
using kernels::cuda::Format;
using kernels::cuda::In;
using kernels::cuda::Out;

constexpr const char* kProductWord = "product";
constexpr const char* kDirectWord = "direct";
// Limit for the host's time to create plans for timing; some are compiled, which takes tenths of a
// second.
constexpr std::chrono::seconds kPlansTimeMax(2);

bool is_asymmetric(const kernels::Window& w) {
  return w.pad_top != w.pad_bottom || w.pad_left != w.pad_right;
}

/// Returns the same convolution of an image that already includes the excess of asymmetric padding.
ConvDims with_symmetric_pads(ConvDims d) {
  kernels::Window& w = d.window;
  const int64_t h = std::min(w.pad_top, w.pad_bottom), v = std::min(w.pad_left, w.pad_right);
  d.x.H += w.pad_top + w.pad_bottom - 2 * h;
  d.x.W += w.pad_left + w.pad_right - 2 * v;
  w.pad_top = w.pad_bottom = h;
  w.pad_left = w.pad_right = v;
  return d;
}

/// Returns the number of engines per way that are timed. In 16 bits the first ones are often one
/// engine with different knobs, whose times differ by a factor of 2 to 5 if C and K are small.
size_t engines_max(Format operands) { return operands == Format::kF32 ? 4 : 12; }

/// Whether the windows of a convolution cover the image without overlapping, as in the patch
/// embedding of a ViT. The image is then a matrix of patches, and the convolution a matrix product.
/// For 1x1 filters, the channels-last image is that matrix.
bool has_disjoint_windows(const ConvDims& d) {
  const kernels::Window& w = d.window;
  const bool are_adjacent = w.stride_h == w.R && w.stride_w == w.S && w.dilation_h == 1 &&
                            w.dilation_w == 1 &&
                            w.pad_top + w.pad_left + w.pad_bottom + w.pad_right == 0;
  const ImageDims y = d.y();
  return are_adjacent && d.group == 1 && y.H * w.R == d.x.H && y.W * w.S == d.x.W;
}
bool has_patches(const ConvDims& d) { return d.window.R * d.window.S > 1; }

/// Returns the matrix product that is equal to a convolution of channels-last images.
std::optional<MatmulDims> product_of(ConvolutionPass pass, const ConvDims& d) {
  if (!has_disjoint_windows(d)) return std::nullopt;
  const int64_t rows = d.x.N * d.y().pixels(), patch = d.weight_elements() / d.K;
  MatmulDims m;
  switch (pass) {
    case ConvolutionPass::kForward:  // y [rows, K] = x [rows, patch] w', w [K, patch]
      m = {rows, d.K, patch};
      m.transpose_b = true;
      break;
    case ConvolutionPass::kData:  // dx [rows, patch] = dy [rows, K] w
      m = {rows, patch, d.K};
      break;
    case ConvolutionPass::kWeights:  // dw [K, patch] = dy' x; the operands are swapped
      m = {d.K, patch, rows};
      m.transpose_a = true;
      break;
  }
  return m;
}

}  // namespace

Convolution::Convolution(const Device& device, const std::string& name, ConvolutionPass pass,
                         const ConvDims& dims, bool channels_last, Epilogue epilogue,
                         Storage storage)
    : device_(device),
      pass_(pass),
      dims_(dims),
      channels_last_(channels_last),
      epilogue_(epilogue),
      storage_(storage),
      operands_(storage.a != Format::kF32 ? storage.a : storage.b) {
  storage_.tf32 = storage_.tf32 && device.has_tf32();
  prepare_product();
  for (const Engines which : {Engines::kFast, Engines::kNaive}) {
    for (const bool padded : {false, true}) {
      if (padded && !is_asymmetric(dims.window)) continue;
      for (const Group& group : groups(padded)) {
        const bool is_chosen = choose(group, which);
        const ConvolutionProblem problem =
            problem_of(*std::ranges::find(group, Method::kEngine, &Way::by));
        if (problem.bias && !is_chosen) note_offer(device, problem, Offer::kNone);
        if (!is_chosen) continue;
        if (problem.bias && chosen_.plan.has_value()) note_offer(device, problem, Offer::kOffered);
        if (chosen_.way.by != Method::kProduct) product_.reset();
        return;
      }
    }
  }
  refuse(name);
}

/// Chooses the product's algorithm first, since choosing among ways must not start another choice.
void Convolution::prepare_product() {
  std::optional<MatmulDims> dims;
  if (channels_last_) dims = product_of(pass_, dims_);
  const bool has_result = storage_.result == Format::kF32 || storage_.result == operands_;
  if (!dims.has_value() || !has_result) return;
  dims->operands = operands_;
  dims->c = storage_.result;
  dims->tf32 = storage_.tf32;
  dims->bias = pass_ == ConvolutionPass::kForward && epilogue_ == Epilogue::kBias;
  dims->bias = dims->bias && Matmul::is_supported(device_, *dims);
  product_adds_bias_ = dims->bias;
  if (dims->bias || Matmul::is_supported(device_, *dims)) product_.emplace(device_, *dims);
}

bool Convolution::is_direct() const {
  return kernels::cuda::supports_direct_conv(dims_) && storage_.b == operands_;
}

/// Whether cuBLASLt reads rows of patches 16 bytes at a time.
bool Convolution::has_fast_patches() const {
  const int64_t row_bytes = dims_.weight_elements() / dims_.K * element_bytes(operands_);
  return has_patches(dims_) && row_bytes % 16 == 0 && dims_.K * element_bytes(operands_) % 16 == 0;
}

std::vector<Convolution::Group> Convolution::groups(bool padded) const {
  const bool mixed = operands_ != storage_.result;
  // A filter's gradient that is rounded to 16 bits and widened comes before one in F32: cuDNN has
  // its fast engines for the former, and jobs without timing use the first proposal
  // (docs/decisions/convolutions-on-a-gpu.md).
  const bool rounded_first = pass_ == ConvolutionPass::kWeights;
  std::vector<Group> groups;
  for (const bool fused : {true, false}) {
    if (fused && epilogue_ == Epilogue::kNone) continue;
    Group& results = groups.emplace_back();
    for (const bool as_operands : {rounded_first, !rounded_first}) {
      if (as_operands && !mixed) continue;
      Way& way = results.emplace_back();
      way.fused = fused;
      way.result_as_operands = as_operands;
      way.padded = padded;
      if (mixed) way.words = name_of(as_operands ? operands_ : storage_.result) + " ";
    }
  }
  if (product_.has_value()) {
    // Without tensor cores, cuDNN's engines reach only half the speed of cuBLASLt. For patches of
    // three channels, they reached a thirtieth of their usual speed
    // (docs/decisions/convolutions-on-a-gpu.md).
    Group& first = groups.front();
    const bool strict = operands_ == Format::kF32 && !storage_.tf32;
    Way product;
    product.by = Method::kProduct;
    product.fused = product_adds_bias_;
    first.insert(strict || has_fast_patches() ? first.begin() : first.end(), std::move(product));
  }
  if (is_direct() && !padded) {
    // cuDNN's engines take ten times as long for these small problems
    // (docs/decisions/convolutions-on-a-gpu.md).
    Way direct;
    direct.by = Method::kDirect;
    direct.fused = epilogue_ != Epilogue::kNone;
    groups.front().insert(groups.front().begin(), std::move(direct));
  }
  return groups;
}

ConvolutionProblem Convolution::problem_of(const Way& way) const {
  return {pass_,
          way.padded ? with_symmetric_pads(dims_) : dims_,
          channels_last_,
          operands_,
          way.result_as_operands ? operands_ : storage_.result,
          way.fused,
          way.fused && epilogue_ == Epilogue::kBiasRelu,
          storage_.tf32};
}

bool Convolution::choose(const Group& group, Engines which) {
  std::optional<Prepared> chosen;
  AlgorithmProblem algorithms;
  algorithms.take = [&](const std::string& words) {
    chosen = restore(group, words);
    return chosen.has_value();
  };
  algorithms.take_first = [&]() -> std::optional<std::string> {
    std::vector<Prepared> first = propose(group, which, /*first_alone=*/true);
    if (first.empty()) return std::nullopt;
    chosen = std::move(first.front());
    return words_of(*chosen);
  };
  algorithms.time = [&] { return time(propose(group, which, /*first_alone=*/false)); };
  const Way& way = *std::ranges::find(group, Method::kEngine, &Way::by);
  const ConvolutionProblem problem = problem_of(way);
  const bool any_result = !way.words.empty();
  std::string key = key_of(problem, workspace_max(problem, device_.memory_bytes()), any_result);
  if (std::ranges::find(group, Method::kDirect, &Way::by) != group.end()) key += " direct";
  if (!device_.choose(key, algorithms)) return false;
  chosen_ = std::move(*chosen);
  return true;
}

std::optional<Convolution::Prepared> Convolution::restore(const Group& group,
                                                          std::string_view words) const {
  for (const Way& way : group) {
    if (way.by != Method::kEngine) {
      if (words == (way.by == Method::kDirect ? kDirectWord : kProductWord)) {
        return lay_out(way, std::nullopt);
      }
      continue;
    }
    if (!words.starts_with(way.words)) continue;
    const std::optional<EngineChoice> choice = parse_engine(words.substr(way.words.size()));
    if (!choice.has_value()) continue;
    auto plan = ConvolutionPlan::restore(device_, problem_of(way), *choice);
    if (plan.has_value() && plan->passes_trial(device_)) return lay_out(way, std::move(plan));
  }
  return std::nullopt;
}

std::vector<Convolution::Prepared> Convolution::propose(const Group& group, Engines which,
                                                        bool first_alone) const {
  std::vector<Prepared> proposed;
  const auto begin = std::chrono::steady_clock::now();
  for (const Way& way : group) {
    if (first_alone && !proposed.empty()) break;
    if (way.by != Method::kEngine) {
      proposed.push_back(lay_out(way, std::nullopt));
      continue;
    }
    const ConvolutionProblem problem = problem_of(way);
    size_t left = first_alone ? 1 : engines_max(operands_);
    for (const EngineChoice& choice : convolution_engines(device_, problem, which)) {
      auto plan = ConvolutionPlan::restore(device_, problem, choice);
      if (!plan.has_value()) continue;
      // Timing leaves out engines that do not run, but does not look at their results.
      if ((first_alone || problem.relu) && !plan->passes_trial(device_)) continue;
      proposed.push_back(lay_out(way, std::move(plan)));
      if (--left == 0 || std::chrono::steady_clock::now() - begin > kPlansTimeMax) break;
    }
  }
  return proposed;
}

/// Times the ways including their conversions and an epilogue of our own.
std::optional<TimedChoice> Convolution::time(const std::vector<Prepared>& prepared) const {
  std::vector<Candidate> candidates;
  for (const Prepared& p : prepared) candidates.push_back({words_of(p), p.workspace_bytes});
  const int64_t image = dims_.x.elements(), filter = dims_.weight_elements(),
                output = dims_.y().elements();
  const bool forward = pass_ == ConvolutionPass::kForward, data = pass_ == ConvolutionPass::kData;
  const auto bytes = [](int64_t elements, Format format) {
    return elements * element_bytes(format);
  };
  const std::array<int64_t, 4> operands{
      bytes(data ? output : image, storage_.a),
      bytes(forward || data ? filter : output, storage_.b),
      bytes(forward ? output
            : data  ? image
                    : filter,
            storage_.result),
      epilogue_ == Epilogue::kNone ? 0 : bytes(dims_.K, Format::kF32)};
  return time_candidates(
      device_, candidates, operands, [&](size_t i, std::span<void* const> at, void* workspace) {
        run(prepared[i], {at[0], storage_.a}, {at[1], storage_.b}, static_cast<const float*>(at[3]),
            {at[2], storage_.result}, workspace);
      });
}

Convolution::Prepared Convolution::lay_out(const Way& way,
                                           std::optional<ConvolutionPlan> plan) const {
  Prepared p;
  p.way = way;
  p.inner = problem_of(way).dims;
  if (way.by == Method::kDirect) {
    if (pass_ == ConvolutionPass::kWeights) {
      p.workspace_bytes =
          kernels::cuda::direct_conv_backward_weights_workspace_bytes(dims_, operands_);
    }
    return p;
  }
  const auto form = [&](int64_t elements, bool is_needed, Format format) -> Form {
    if (!is_needed) return {-1, format};
    const Form f{p.workspace_bytes, format};
    p.workspace_bytes += aligned(elements * element_bytes(format));
    return f;
  };
  const Format made = way.result_as_operands ? operands_ : storage_.result;
  // If both filter layouts have the same memory order, nothing needs to be reordered.
  const bool reorders =
      channels_last_ && dims_.window.R * dims_.window.S > 1 && dims_.group_channels() > 1;
  const int64_t image = p.inner.x.elements(), filter = dims_.weight_elements();
  const int64_t output = dims_.y().elements();
  const bool a_narrows = operands_ != storage_.a, b_narrows = operands_ != storage_.b;
  const bool result_differs = made != storage_.result;
  const bool rearranges = way.padded || takes_patches(p);
  switch (pass_) {
    case ConvolutionPass::kForward:
      p.a = form(image, rearranges || a_narrows, operands_);
      p.b = form(filter, reorders || b_narrows, operands_);
      p.result = form(output, result_differs, made);
      break;
    case ConvolutionPass::kData:
      p.a = form(output, a_narrows, operands_);
      p.b = form(filter, reorders || b_narrows, operands_);
      p.result = form(image, rearranges || result_differs, made);
      break;
    case ConvolutionPass::kWeights:
      p.a = form(image, rearranges || a_narrows, operands_);
      p.b = form(output, b_narrows, operands_);
      p.result = form(filter, reorders || result_differs, made);
      break;
  }
  const bool is_engine = way.by == Method::kEngine;
  p.added = form(dims_.K, is_engine && way.fused && operands_ != Format::kF32, operands_);
  p.plan_at = p.workspace_bytes;
  p.workspace_bytes += plan.has_value() ? plan->workspace_bytes() : product_->workspace_bytes();
  p.plan = std::move(plan);
  return p;
}

std::string Convolution::words_of(const Prepared& p) {
  switch (p.way.by) {
    case Method::kDirect:
      return kDirectWord;
    case Method::kProduct:
      return kProductWord;
    case Method::kEngine:
      break;
  }
  return p.way.words + cuda::words_of(p.plan->choice());
}

void Convolution::refuse(const std::string& name) const {
  check_sound(device_, "looking for an engine of " + name);
  const ImageDims y = dims_.y();
  const kernels::Window& w = dims_.window;
  const auto shape = [](std::initializer_list<int64_t> sizes) {
    std::string text;
    for (const int64_t s : sizes) text += (text.empty() ? "[" : ", ") + std::to_string(s);
    return text + "]";
  };
  throw CudaError(name + ": cuDNN has no engine for this convolution: image " +
                      shape({dims_.x.N, dims_.x.C, dims_.x.H, dims_.x.W}) + ", filters " +
                      shape({dims_.K, dims_.group_channels(), w.R, w.S}) + ", output " +
                      shape({y.N, y.C, y.H, y.W}) + ", strides " + shape({w.stride_h, w.stride_w}) +
                      ", pads " + shape({w.pad_top, w.pad_left, w.pad_bottom, w.pad_right}) +
                      ", dilations " + shape({w.dilation_h, w.dilation_w}) + ", group " +
                      std::to_string(dims_.group) + ", " + name_of(operands_),
                  CUDNN_STATUS_NOT_SUPPORTED, CudaFault::kProgram);
}

/// Copies between an image of the op and the plan's larger image, in either direction, or between
/// images of equal size.
void Convolution::copy_image(const Prepared& by, const ImageDims& from, In x, const ImageDims& to,
                             Out y) const {
  const ImageStrides xs = strides_of(from, channels_last_), ys = strides_of(to, channels_last_);
  const ImageDims d{from.N, from.C, std::min(from.H, to.H), std::min(from.W, to.W)};
  const kernels::Window &outer = dims_.window, &inner = by.inner.window;
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

/// Copies between a channels-last image and the matrix of its patches [N P Q, R S C].
void Convolution::copy_patches(bool to_matrix, In x, Out y) const {
  const ImageStrides image = strides_of(dims_.x, /*channels_last=*/true);
  const ImageDims outputs = dims_.y();
  const kernels::Window& w = dims_.window;
  const int64_t row = w.S * dims_.x.C, patch = w.R * row;
  Box<2> box;
  const auto append = [&](int64_t count, int64_t in_image, int64_t in_matrix) {
    to_matrix ? box.append(count, {in_image, in_matrix}) : box.append(count, {in_matrix, in_image});
  };
  append(outputs.N, image.n, outputs.pixels() * patch);
  append(outputs.H, w.R * image.h, outputs.W * patch);
  append(w.R, image.h, row);
  append(outputs.W, row, patch);
  append(row, 1, 1);
  kernels::cuda::copy(box, x, y, device_.stream());
}

/// Copies a filter between the parameter's memory order and the plan's.
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

bool Convolution::takes_patches(const Prepared& by) const {
  return by.way.by == Method::kProduct && has_patches(dims_);
}

void Convolution::run(const Prepared& by, In a, In b, const float* bias, Out result,
                      void* workspace) const {
  if (by.way.by == Method::kDirect) return run_direct(a, b, bias, result, workspace);
  auto* memory = static_cast<std::byte*>(workspace);
  const auto piece = [&](const Form& f) { return Out{memory + f.at, f.format}; };
  const ImageDims y = dims_.y();
  if (by.a.at >= 0) {
    const Out to = piece(by.a);
    if (pass_ == ConvolutionPass::kData) {
      copy_image(by, y, a, y, to);
    } else if (takes_patches(by)) {
      copy_patches(/*to_matrix=*/true, a, to);
    } else {
      if (by.inner.x.elements() != dims_.x.elements()) {
        Box<2> whole;
        whole.append(by.inner.x.elements(), {0, 1});
        kernels::cuda::zero(whole, to, device_.stream());
      }
      copy_image(by, dims_.x, a, by.inner.x, to);
    }
    a = to;
  }
  if (by.b.at >= 0) {
    const Out to = piece(by.b);
    if (pass_ == ConvolutionPass::kWeights) {
      copy_image(by, y, b, y, to);
    } else {
      copy_filter(/*to_plan=*/true, b, to);
    }
    b = to;
  }
  const void* added = by.way.fused ? bias : nullptr;
  if (by.added.at >= 0) {
    const Out to = piece(by.added);
    kernels::cuda::convert(dims_.K, {bias}, to, device_.stream());
    added = to.data;
  }
  const Out made = by.result.at >= 0 ? piece(by.result) : result;
  compute(by, a.data, b.data, added, made.data, memory == nullptr ? nullptr : memory + by.plan_at);
  if (by.result.at >= 0) {
    switch (pass_) {
      case ConvolutionPass::kForward:
        copy_image(by, y, made, y, result);
        break;
      case ConvolutionPass::kData:
        takes_patches(by) ? copy_patches(/*to_matrix=*/false, made, result)
                          : copy_image(by, by.inner.x, made, dims_.x, result);
        break;
      case ConvolutionPass::kWeights:
        copy_filter(/*to_plan=*/false, made, result);
        break;
    }
  }
  if (by.way.fused || epilogue_ == Epilogue::kNone) return;
  if (epilogue_ == Epilogue::kBiasRelu) {
    kernels::cuda::bias_relu(y, channels_last_, bias, result, device_.stream());
  } else {
    add_image_bias(device_, y, strides_of(y, channels_last_), bias, result);
  }
}

void Convolution::run_direct(In a, In b, const float* bias, Out result, void* workspace) const {
  CUstream_st* const stream = device_.stream();
  switch (pass_) {
    case ConvolutionPass::kForward:
      kernels::cuda::direct_conv_forward(
          dims_, channels_last_,
          {.x = a, .w = b, .bias = bias, .relu = epilogue_ == Epilogue::kBiasRelu, .y = result},
          stream);
      break;
    case ConvolutionPass::kData:
      kernels::cuda::direct_conv_backward_data(dims_, channels_last_, a, b, result, stream);
      break;
    case ConvolutionPass::kWeights:
      kernels::cuda::direct_conv_backward_weights(
          dims_, channels_last_, {.x = a, .dy = b, .dw = result}, {stream, workspace});
      break;
  }
}

void Convolution::run_gradients(In x, In dy, Out dw, float* db, void* workspace) const {
  TRAINYARD_CHECK(gives_bias_gradient(), "this algorithm does not compute a bias gradient");
  kernels::cuda::direct_conv_backward_weights(
      dims_, channels_last_, {.x = x, .dy = dy, .dw = dw, .db = db}, {device_.stream(), workspace});
}

/// Runs the engine, or the product.
void Convolution::compute(const Prepared& by, const void* a, const void* b, const void* added,
                          void* result, void* workspace) const {
  const bool weights = pass_ == ConvolutionPass::kWeights;
  if (by.way.by == Method::kProduct) {
    const In bias = added == nullptr ? In{} : In{added, Format::kF32};
    product_->run(weights ? b : a, weights ? a : b, bias, result, workspace);
    return;
  }
  switch (pass_) {
    case ConvolutionPass::kForward:
      by.plan->run(a, b, result, added, workspace);
      break;
    case ConvolutionPass::kData:
      by.plan->run(result, b, a, nullptr, workspace);
      break;
    case ConvolutionPass::kWeights:
      by.plan->run(a, result, b, nullptr, workspace);
      break;
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
