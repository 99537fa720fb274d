// Catches: a tensor, pad or stride in our description for cuDNN that is not the op's; an attribute
// with a wrong name, type or count; an engine that must not be used. Descriptors, the operation
// graph and the heuristics need no GPU, so the real library checks them here.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/conv_algorithms.h"
#include "tests/cuda/described_device.h"

namespace trainyard::cuda {
namespace {

using kernels::ConvDims;
using kernels::ImageDims;
using kernels::cuda::Format;

template <typename T>
std::vector<T> attribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most) {
  std::vector<T> values(static_cast<size_t>(most));
  int64_t count = 0;
  check(cudnnBackendGetAttribute(d, name, type, most, &count, values.data()),
        "cudnnBackendGetAttribute");
  values.resize(static_cast<size_t>(count));
  return values;
}

/// A tensor's descriptor read back, which gives the offset that cuDNN computes for an index.
struct Tensor {
  std::vector<int64_t> size, stride;
  cudnnDataType_t type;
  explicit Tensor(cudnnBackendDescriptor_t d)
      : size(attribute<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4)),
        stride(attribute<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4)),
        type(attribute<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1)
                 .at(0)) {}
};

ConvDims dims(int64_t group = 1) {
  ConvDims d{{2, 6, 9, 7}, 8, {}, group};
  d.window = {3, 2, 2, 1, 1, 0, 1, 1, 1, 2};
  return d;
}

TEST(ConvolutionDescription, TensorsLieAsTheOpsDo) {
  for (const bool channels_last : {true, false}) {
    const ConvDims d = dims(2);
    const ConvolutionGraph graph(
        {ConvolutionPass::kForward, d, channels_last, Format::kBf16, Format::kF32, false}, nullptr);
    const ImageDims y = d.y();
    const Tensor x(graph.image()), w(graph.filter()), out(graph.output());
    EXPECT_EQ(x.size, (std::vector<int64_t>{2, 6, 9, 7}));
    EXPECT_EQ(w.size, (std::vector<int64_t>{8, 3, 3, 2}));
    EXPECT_EQ(out.size, (std::vector<int64_t>{y.N, y.C, y.H, y.W}));
    if (channels_last) {
      EXPECT_EQ(x.stride, (std::vector<int64_t>{378, 1, 42, 6}));
      EXPECT_EQ(w.stride, (std::vector<int64_t>{18, 1, 6, 3}));
      EXPECT_EQ(out.stride, (std::vector<int64_t>{y.C * y.H * y.W, 1, y.W * y.C, y.C}));
    } else {
      EXPECT_EQ(x.stride, (std::vector<int64_t>{378, 63, 7, 1}));
      EXPECT_EQ(w.stride, (std::vector<int64_t>{18, 6, 2, 1}));
      EXPECT_EQ(out.stride, (std::vector<int64_t>{y.C * y.H * y.W, y.H * y.W, y.W, 1}));
    }
    EXPECT_EQ(x.type, CUDNN_DATA_BFLOAT16);
    EXPECT_EQ(w.type, CUDNN_DATA_BFLOAT16);
    EXPECT_EQ(out.type, CUDNN_DATA_FLOAT);
  }
}

// cuDNN itself compares the sizes of the tensors with strides, pads and dilations.
TEST(ConvolutionDescription, EveryGraphIsAccepted) {
  for (const ConvolutionPass pass :
       {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
    for (const bool channels_last : {true, false}) {
      for (const Format format : {Format::kF32, Format::kBf16, Format::kF16}) {
        for (const int64_t group : {1, 2}) {
          for (const bool bias : {false, true}) {
            if (bias && pass != ConvolutionPass::kForward) continue;
            for (const bool relu : {false, true}) {
              if (relu && !bias) continue;
              EXPECT_NO_THROW(ConvolutionGraph(
                  {pass, dims(group), channels_last, format, format, bias, relu}, nullptr));
            }
          }
        }
      }
    }
  }
}

TEST(ConvolutionDescription, AWrongSizeIsRefused) {
  ConvDims d = dims();
  d.window.S = 20;  // wider than the image: an output without columns
  EXPECT_THROW(
      ConvolutionGraph({ConvolutionPass::kForward, d, true, Format::kF32, Format::kF32, false},
                       nullptr),
      CudaError);
}

std::vector<cudnnBackendNumericalNote_t> notes_of(cudnnBackendDescriptor_t config) {
  cudnnBackendDescriptor_t engine = nullptr;
  check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), "create");
  const BackendDescriptor owner(engine);
  int64_t count = 0;
  check(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &count, &engine),
        "engine");
  return attribute<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                CUDNN_TYPE_NUMERICAL_NOTE,
                                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
}

// The layers of an image network, and one with every unusual option: each has an allowed engine for
// which the library makes a plan for an H100.
TEST(ConvolutionDescription, EveryLayerHasAnEngine) {
  const BackendDescriptor device = h100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  std::vector<ConvDims> layers(3);
  layers[0] = {{32, 64, 56, 56}, 64, {3, 3, 1, 1, 1, 1, 1, 1}, 1};
  layers[1] = {{32, 3, 224, 224}, 64, {7, 7, 2, 2, 3, 3, 3, 3}, 1};
  layers[2] = dims();
  int proposed = 0, refused = 0, in_tf32 = 0;
  for (const ConvDims& d : layers) {
    for (const ConvolutionPass pass :
         {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
      for (const char* type : {"F32", "TF32", "bf16", "f16"}) {
        SCOPED_TRACE(std::to_string(d.x.C) + " channels, pass " +
                     std::to_string(static_cast<int>(pass)) + " " + type);
        const bool tf32 = type == std::string("TF32");
        const Format format = type == std::string("bf16")  ? Format::kBf16
                              : type == std::string("f16") ? Format::kF16
                                                           : Format::kF32;
        const bool whole = format == Format::kF32 && !tf32;
        const ConvolutionProblem problem{pass, d, true, format, format, false, false, tf32};
        const ConvolutionGraph graph(problem, nullptr);
        bool has_plan = false;
        for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
          for (const BackendDescriptor& config :
               propose_engines(graph.graph(), mode, device.get())) {
            ++proposed;
            const auto notes = notes_of(config.get());
            const auto has = [&](cudnnBackendNumericalNote_t note) {
              return std::count(notes.begin(), notes.end(), note) > 0;
            };
            const bool allowed = is_allowed(config.get(), {format, tf32});
            refused += allowed ? 0 : 1;
            const bool tensor_cores = has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
            in_tf32 += tf32 && allowed && tensor_cores ? 1 : 0;
            if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) || (tensor_cores && whole)) {
              EXPECT_FALSE(allowed);
            }
            if (notes.empty()) {
              EXPECT_TRUE(allowed);
            }
            if (!allowed || has_plan) continue;
            has_plan = described_plan(config.get(), device.get()) != nullptr;
            const EngineChoice choice = choice_of(config.get());
            // The recorded choice suffices to create the same engine again.
            const RestoredEngine again = restore_engine(graph.graph(), choice, device.get());
            EXPECT_EQ(described_plan(again.config.get(), device.get()) != nullptr, has_plan);
            EXPECT_EQ(is_allowed(again.config.get(), {format, tf32}), allowed);
            EXPECT_EQ(choice_of(again.config.get()).engine, choice.engine);
            EXPECT_EQ(choice_of(again.config.get()).knobs.size(), choice.knobs.size());
            EXPECT_GE(choice.engine, 0);
            for (const EngineChoice::Knob& knob : choice.knobs) {
              EXPECT_GE(knob.type, 0);
              EXPECT_LT(knob.type, CUDNN_KNOB_TYPE_COUNTS);
            }
          }
        }
        EXPECT_TRUE(has_plan);
      }
    }
  }
  EXPECT_GT(refused, 0);  // engines with TF32 are proposed first
  EXPECT_GT(in_tf32, 0);
  EXPECT_LT(refused, proposed);
}

struct Layer {
  int64_t C, size, K, filter = 3, stride = 1;
};
ConvDims dims_of(const Layer& l, int64_t batch) {
  ConvDims d{{batch, l.C, l.size, l.size}, l.K, {}, 1};
  const int64_t pad = l.filter / 2;
  d.window = {l.filter, l.filter, l.stride, l.stride, pad, pad, pad, pad};
  return d;
}

/// The convolutions of ResNet-18 on 512 images of 32 x 32.
std::vector<ConvDims> resnet18_convolutions() {
  std::vector<ConvDims> all;
  for (const Layer& l : std::initializer_list<Layer>{{3, 32, 64},
                                                     {64, 32, 64},
                                                     {64, 32, 128, 3, 2},
                                                     {64, 32, 128, 1, 2},
                                                     {128, 16, 128},
                                                     {128, 16, 256, 3, 2},
                                                     {128, 16, 256, 1, 2},
                                                     {256, 8, 256},
                                                     {256, 8, 512, 3, 2},
                                                     {256, 8, 512, 1, 2},
                                                     {512, 4, 512}}) {
    all.push_back(dims_of(l, 512));
  }
  return all;
}

/// Every convolution of ResNet-50, of VGG16, and of ResNet-18 for images of 32x32 pixels.
std::vector<ConvDims> convolutions_of_networks() {
  std::vector<ConvDims> all;
  for (const Layer& l : std::initializer_list<Layer>{
           {3, 224, 64, 7, 2},     {64, 56, 64, 1},    {64, 56, 64},          {64, 56, 256, 1},
           {256, 56, 64, 1},       {256, 56, 128, 1},  {128, 56, 128, 3, 2},  {128, 28, 512, 1},
           {256, 56, 512, 1, 2},   {512, 28, 128, 1},  {128, 28, 128},        {512, 28, 256, 1},
           {256, 28, 256, 3, 2},   {256, 14, 1024, 1}, {512, 28, 1024, 1, 2}, {1024, 14, 256, 1},
           {256, 14, 256},         {1024, 14, 512, 1}, {512, 14, 512, 3, 2},  {512, 7, 2048, 1},
           {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1},  {512, 7, 512}}) {
    all.push_back(dims_of(l, 128));
  }
  for (const Layer& l : std::initializer_list<Layer>{{3, 224, 64},
                                                     {64, 224, 64},
                                                     {64, 112, 128},
                                                     {128, 112, 128},
                                                     {128, 56, 256},
                                                     {256, 56, 256},
                                                     {256, 28, 512},
                                                     {512, 28, 512},
                                                     {512, 14, 512}}) {
    all.push_back(dims_of(l, 64));
  }
  for (const ConvDims& d : resnet18_convolutions()) all.push_back(d);
  return all;
}

constexpr int64_t kLarge = int64_t{80} << 30;  // memory of a large GPU, in bytes

/// The first engine, other than the last resorts, for which the library makes a plan within the
/// workspace budget. A filter's gradient in 16 bits is rounded to 16 bits.
std::optional<EngineChoice> first_engine(ConvolutionPass pass, const ConvDims& d, Format format,
                                         bool tf32, const BackendDescriptor& device,
                                         int64_t memory_bytes = kLarge) {
  const ConvolutionProblem problem{pass, d, true, format, format, false, false, tf32};
  const ConvolutionGraph graph(problem, nullptr);
  for (const EngineChoice& choice :
       allowed_engines(graph.graph(), {format, tf32}, Engines::kFast, device.get())) {
    const RestoredEngine engine = restore_engine(graph.graph(), choice, device.get());
    const BackendDescriptor plan = described_plan(engine.config.get(), device.get());
    if (plan != nullptr &&
        dnn::get<int64_t>(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) <=
            workspace_max(problem, memory_bytes)) {
      return choice;
    }
  }
  return std::nullopt;
}

// The naive engine is up to 150 times slower. It would be chosen where the workspace budget has no
// room to convert images from row-major.
TEST(ConvolutionDescription, NoNetworkNeedsTheNaiveEngine) {
  for (const bool newer : {true, false}) {
    const BackendDescriptor device = newer ? h100() : a100();
    if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
    for (const ConvDims& d : convolutions_of_networks()) {
      // The A100 is tried only with convolutions for which 256 MiB are too few.
      const bool large =
          workspace_max({ConvolutionPass::kForward, d}, kLarge) > kConvolutionWorkspaceMost;
      if (!newer && !large) continue;
      for (const ConvolutionPass pass :
           {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
        for (const auto& [format, tf32] :
             {std::pair(Format::kF32, false), {Format::kF32, true}, {Format::kBf16, false}}) {
          const auto engine = first_engine(pass, d, format, tf32, device);
          EXPECT_TRUE(engine.has_value() && engine->engine != 0)
              << (newer ? "H100" : "A100") << " pass " << static_cast<int>(pass) << " image "
              << d.x.N << "," << d.x.C << "," << d.x.H << " filters " << d.K << "," << d.window.R
              << " stride " << d.window.stride_h << (tf32 ? " TF32" : "");
        }
      }
    }
  }
}

// The small budgets of a GPU of 2 GB suffice for the network that fits on it.
TEST(ConvolutionDescription, AnOldGpuOfTwoGigabytesNeedsNoNaiveEngine) {
  const BackendDescriptor device = mx450();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  for (const Format format : {Format::kF32, Format::kF16}) {
    for (ConvDims d : resnet18_convolutions()) {
      d.x.N = 128;
      for (const ConvolutionPass pass :
           {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
        const auto engine = first_engine(pass, d, format, /*tf32=*/false, device, int64_t{2} << 30);
        EXPECT_TRUE(engine.has_value() && engine->engine != 0)
            << "pass " << static_cast<int>(pass) << " channels " << d.x.C << " side " << d.x.H
            << " filters " << d.K << (format == Format::kF16 ? " fp16" : " F32");
      }
    }
  }
}

TEST(ConvolutionDescription, TheNaiveEnginesAreTheRest) {
  const BackendDescriptor device = h100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  for (const ConvolutionPass pass :
       {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
    const ConvolutionGraph graph({pass, dims_of({256, 28, 256}, 128), true}, nullptr);
    const auto engines = [&](Engines which) {
      return allowed_engines(graph.graph(), {}, which, device.get());
    };
    ASSERT_FALSE(engines(Engines::kNaive).empty());
    for (const EngineChoice& choice : engines(Engines::kNaive)) EXPECT_EQ(choice.engine, 0);
    std::vector<EngineChoice> seen;
    for (const EngineChoice& choice : engines(Engines::kFast)) {
      EXPECT_NE(choice.engine, 0);
      EXPECT_EQ(std::ranges::count(seen, choice), 0);
      EXPECT_EQ(parse_engine(words_of(choice)), choice);
      seen.push_back(choice);
    }
  }
}

TEST(ConvolutionDescription, TheBudgetGrowsWithTheOperands) {
  ConvolutionProblem p{ConvolutionPass::kData, dims_of({64, 224, 64}, 64), true};
  EXPECT_EQ(workspace_max(p, kLarge),
            (int64_t{2} * 64 * 64 * 224 * 224 + 64 * 64 * 9) * 4 + (32 << 20));
  p.operands = Format::kBf16;
  EXPECT_EQ(workspace_max(p, kLarge), (int64_t{64} * 64 * 224 * 224 + 64 * 64 * 9) * 2 +
                                          int64_t{64} * 64 * 224 * 224 * 4 + (32 << 20));
  p.dims = dims();
  EXPECT_EQ(workspace_max(p, kLarge), int64_t{256} << 20);
  EXPECT_LT(workspace_max(p, int64_t{2} << 30), int64_t{64} << 20);
}

// Convolutions of VGG16 and LeNet-5, followed by bias and ReLU.
TEST(ConvolutionDescription, BiasAndReluHaveAnEngine) {
  const BackendDescriptor device = h100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  const kernels::Window three{3, 3, 1, 1, 1, 1, 1, 1}, five{5, 5};
  const ConvDims layers[] = {
      {{128, 3, 224, 224}, 64, three},  {{128, 64, 224, 224}, 64, three},
      {{128, 256, 56, 56}, 256, three}, {{128, 512, 14, 14}, 512, three},
      {{64, 1, 28, 28}, 6, five},       {{64, 6, 12, 12}, 16, five},
  };
  for (const ConvDims& d : layers) {
    for (const char* type : {"F32", "TF32", "bf16", "f16"}) {
      SCOPED_TRACE(std::to_string(d.x.C) + " channels " + type);
      const bool tf32 = type == std::string("TF32");
      const Format format = type == std::string("bf16")  ? Format::kBf16
                            : type == std::string("f16") ? Format::kF16
                                                         : Format::kF32;
      const ConvolutionGraph graph(
          {ConvolutionPass::kForward, d, true, format, format, true, true, tf32}, nullptr);
      bool has_plan = false;
      for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        for (const BackendDescriptor& config : propose_engines(graph.graph(), mode, device.get())) {
          has_plan = has_plan || (is_allowed(config.get(), {format, tf32}) &&
                                  described_plan(config.get(), device.get()) != nullptr);
        }
      }
      EXPECT_TRUE(has_plan);
    }
  }
}

}  // namespace
}  // namespace trainyard::cuda
