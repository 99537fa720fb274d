// Catches: a tensor, pad or stride in what we tell cuDNN that is not the op's; an attribute of a
// wrong name, type or count; an engine that may not be used. Descriptors, the operation graph and
// the heuristics need no GPU, so the library itself is asked here.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "src/runtime/cuda/convolution.h"

namespace trainyard::cuda {
namespace {

using kernels::ConvDims;
using kernels::ImageDims;
using Four = std::array<int64_t, 4>;

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

/// The element of a tensor that cuDNN finds at an index.
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
    const ConvolutionGraph graph({ConvolutionPass::kForward, d, channels_last, true, false, false},
                                 nullptr);
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
      for (const bool bf16 : {false, true}) {
        for (const int64_t group : {1, 2}) {
          for (const bool bias : {false, true}) {
            if (bias && pass != ConvolutionPass::kForward) continue;
            EXPECT_NO_THROW(
                ConvolutionGraph({pass, dims(group), channels_last, bf16, bf16, bias}, nullptr));
          }
        }
      }
    }
  }
}

TEST(ConvolutionDescription, AWrongSizeIsRefused) {
  ConvDims d = dims();
  d.window.S = 20;  // wider than the image: an output without columns
  EXPECT_THROW(ConvolutionGraph({ConvolutionPass::kForward, d, true, false, false, false}, nullptr),
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

TEST(ConvolutionDescription, EnginesAreChosenByTheirNotes) {
  ConvDims d{{16, 64, 28, 28}, 64, {}, 1};
  d.window = {3, 3, 1, 1, 1, 1, 1, 1};
  int proposed = 0, refused = 0;
  for (const ConvolutionPass pass :
       {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
    for (const bool bf16 : {false, true}) {
      const ConvolutionProblem problem{pass, d, true, bf16, bf16, false};
      const ConvolutionGraph graph(problem, nullptr);
      for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        for (const BackendDescriptor& config : propose_engines(graph, mode)) {
          ++proposed;
          const auto notes = notes_of(config.get());
          const bool has_order =
              std::count(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == 0;
          const bool tensor_core =
              std::count(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) > 0;
          const bool allowed = is_allowed(config.get(), problem);
          if (!allowed) ++refused;
          if (!has_order || (tensor_core && !bf16)) {
            EXPECT_FALSE(allowed);
          }
          if (notes.empty()) {
            EXPECT_TRUE(allowed);
          }
        }
      }
    }
  }
  // Without a GPU the library may propose little, but it does propose.
  EXPECT_GT(proposed, 0);
  EXPECT_LT(refused, proposed);
}

TEST(ConvolutionDescription, AChoiceIsAnEngineAndItsKnobs) {
  const ConvolutionProblem problem{ConvolutionPass::kForward, dims(), true, false, false, false};
  const ConvolutionGraph graph(problem, nullptr);
  std::vector<BackendDescriptor> engines = propose_engines(graph, CUDNN_HEUR_MODE_A);
  if (engines.empty()) engines = propose_engines(graph, CUDNN_HEUR_MODE_FALLBACK);
  ASSERT_FALSE(engines.empty());
  const EngineChoice choice = choice_of(engines[0].get());
  EXPECT_GE(choice.engine, 0);
  for (const EngineChoice::Knob& knob : choice.knobs) {
    EXPECT_GE(knob.type, 0);
    EXPECT_LT(knob.type, CUDNN_KNOB_TYPE_COUNTS);
  }
}

}  // namespace
}  // namespace trainyard::cuda
