// Catches: a fake library that accepts what the real one refuses, so that a call which fails on
// every GPU passes all tests. Each refusal is provoked once, and the nearest valid call is
// accepted.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/conv_algorithms.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/fused_attention.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/workspace.h"

namespace trainyard {
namespace {

using cuda::MatmulDims;
using kernels::cuda::Format;

constexpr int64_t kRoom = 1 << 16;

/// The message of the refusal; empty if `f` succeeds.
std::string refusal_of(const std::function<void()>& f) {
  testing::note_refusal("");
  try {
    f();
  } catch (const CudaError&) {
    return testing::last_refusal();
  }
  return "";
}
void expect_refused(const std::string& sentence, const std::function<void()>& f) {
  EXPECT_NE(refusal_of(f).find(sentence), std::string::npos)
      << "expected \"" << sentence << "\", got \"" << testing::last_refusal() << "\"";
}

/// A device and blocks of its memory, each of kRoom bytes.
class FakeRefusals : public ::testing::Test {
 protected:
  void* memory(int64_t bytes = kRoom) {
    memory_.push_back(device_.allocate(bytes));
    return memory_.back().get();
  }
  static void* behind(void* memory, int64_t bytes) {
    return static_cast<std::byte*>(memory) + bytes;
  }

  /// The plan of the first proposed engine that runs.
  std::optional<cuda::ConvolutionPlan> first_plan(const cuda::ConvolutionProblem& problem) {
    for (const auto& choice : convolution_engines(device_, problem, cuda::Engines::kFast)) {
      auto plan = cuda::ConvolutionPlan::restore(device_, problem, choice);
      if (plan.has_value() && plan->passes_trial(device_)) return plan;
    }
    return std::nullopt;
  }

  cuda::Device device_{0};
  std::vector<cuda::DeviceMemory> memory_;
  void *const a_ = memory(), *const b_ = memory(), *const c_ = memory(), *const w_ = memory();
};

TEST_F(FakeRefusals, OfAProductsMemory) {
  const cuda::Matmul product(device_, MatmulDims{4, 8, 16});
  const auto run = [&](void* a, void* b, void* c, void* workspace) {
    return [=, &product] { product.run(a, b, {}, c, workspace); };
  };
  EXPECT_EQ(refusal_of(run(a_, b_, c_, w_)), "");
  expect_refused(
      "The workspace pointer must be aligned to at least a multiple of 256 bytes, got "
      "misalignment of 64 byte(s)",
      run(a_, b_, c_, behind(w_, 64)));
  expect_refused("misalignment of 192 byte(s)", run(a_, b_, c_, behind(w_, 192)));
  EXPECT_EQ(refusal_of(run(a_, b_, c_, behind(w_, 256))), "");
  expect_refused("The workspace pointer is NULL", run(a_, b_, c_, nullptr));
  expect_refused("The workspace takes 4096 bytes", run(a_, b_, c_, behind(w_, kRoom - 2048)));
  // In cuBLASLt's column-major terms, our b is the first operand.
  expect_refused("The A pointer is NULL", run(a_, nullptr, c_, w_));
  expect_refused("The B pointer is NULL", run(nullptr, b_, c_, w_));
  expect_refused("The C pointer is NULL", run(a_, b_, nullptr, w_));
  expect_refused("The B pointer must be aligned to at least a multiple of 16 bytes",
                 run(behind(a_, 8), b_, c_, w_));
  expect_refused("The C takes 128 bytes, and 64", run(a_, b_, behind(c_, kRoom - 64), w_));
  float host[64] = {};
  expect_refused("and 0 bytes of device memory are there", run(a_, host, c_, w_));
}

TEST_F(FakeRefusals, OfAProductGoByTheAlignmentThatWasDeclared) {
  MatmulDims dims{4, 8, 16};
  dims.alignment = 8;
  const cuda::Matmul product(device_, dims);
  EXPECT_EQ(refusal_of([&] { product.run(behind(a_, 8), b_, {}, c_, w_); }), "");
  expect_refused("a multiple of 8 bytes, got misalignment of 4 byte(s)",
                 [&] { product.run(behind(a_, 4), b_, {}, c_, w_); });
}

TEST_F(FakeRefusals, OfAProductsLayout) {
  MatmulDims dims{4, 8, 16};
  dims.row_a = 15;
  expect_refused("has the leading dimension 15", [&] { cuda::Matmul(device_, dims); });
  dims.row_a = 0;
  dims.row_c = 12;
  dims.epilogue = cuda::Epilogue::kGeluKept;
  expect_refused("auxiliary matrix is 12, it must be a multiple of 8",
                 [&] { cuda::Matmul(device_, dims); });
  MatmulDims batch{4, 8, 16};
  batch.batch = 2;  // the batch stride is 0
  expect_refused("All results have one place", [&] { cuda::Matmul(device_, batch); });
}

TEST_F(FakeRefusals, OfReluAndItsBits) {
  MatmulDims dims{4, 8, 16};
  for (const cuda::Epilogue epilogue : {cuda::Epilogue::kReluKept, cuda::Epilogue::kReluGrad}) {
    dims.epilogue = epilogue;
    const cuda::Matmul product(device_, dims);
    const auto run = [&](void* bits) {
      return [=, this, &product] { product.run(a_, b_, {}, c_, w_, bits); };
    };
    void* const bits = memory();
    EXPECT_EQ(refusal_of(run(bits)), "");
    expect_refused("The auxiliary matrix pointer must be aligned", run(behind(bits, 8)));
    expect_refused("The auxiliary matrix takes 64 bytes", run(behind(bits, kRoom - 32)));

    const cuda::MatmulDescription description(dims);
    const auto set_leading = [&](int64_t leading) {
      cuda::check(cublasLtMatmulDescSetAttribute(description.operation.get(),
                                                 CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading,
                                                 sizeof leading),
                  "the leading dimension of bits");
    };
    const auto ask = [&] {
      cublasLtMatmulPreference_t preference = nullptr;
      cuda::check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
      const cuda::MatmulPreference owner(preference);
      const uint64_t most = kRoom;
      cuda::check(cublasLtMatmulPreferenceSetAttribute(
                      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
                  "workspace");
      cublasLtMatmulHeuristicResult_t result{};
      int found = 0;
      cuda::check(cublasLtMatmulAlgoGetHeuristic(device_.blas(), description.operation.get(),
                                                 description.b.get(), description.a.get(),
                                                 description.c.get(), description.c.get(),
                                                 preference, 1, &result, &found),
                  "asking for an algorithm");
    };
    set_leading(64);
    expect_refused("auxiliary matrix is 64, it must be a multiple of 128", ask);
    set_leading(0);
    expect_refused("auxiliary matrix is 0, it must be a multiple of 128 and at least 8", ask);
    set_leading(256);
    EXPECT_EQ(refusal_of(ask), "");
  }
}

TEST_F(FakeRefusals, OfABias) {
  MatmulDims dims{4, 8, 16};
  dims.bias = true;
  const cuda::Matmul product(device_, dims);
  const auto run = [&](void* bias) {
    return [=, this, &product] { product.run(a_, b_, {bias}, c_, w_); };
  };
  void* const bias = memory();
  EXPECT_EQ(refusal_of(run(bias)), "");
  expect_refused("The bias pointer is NULL", run(nullptr));
  expect_refused("The bias pointer must be aligned", run(behind(bias, 4)));
}

// cuBLASLt computes such products, but several times slower.
TEST_F(FakeRefusals, SlowProductsIn16BitsAreCounted) {
  const auto is_slow = [&](MatmulDims dims, Format format) {
    dims.operands = dims.c = format;
    const cuda::Matmul product(device_, dims);
    const int64_t before = testing::slow_products();
    product.run(a_, b_, {}, c_, w_);
    return testing::slow_products() > before;
  };
  EXPECT_FALSE(is_slow({4, 8, 16}, Format::kBf16));
  EXPECT_FALSE(is_slow({5, 8, 16}, Format::kBf16));  // the number of rows does not matter
  EXPECT_TRUE(is_slow({4, 7, 16}, Format::kBf16));
  EXPECT_TRUE(is_slow({4, 8, 15}, Format::kF16));
  EXPECT_TRUE(is_slow({4, 12, 16}, Format::kBf16));
  EXPECT_FALSE(is_slow({4, 7, 15}, Format::kF32));
  MatmulDims padded{4, 8, 15};
  padded.row_a = 16;  // rows of 32 bytes, of which the product multiplies 30
  EXPECT_TRUE(is_slow(padded, Format::kBf16));
  padded.k = 16;
  EXPECT_FALSE(is_slow(padded, Format::kBf16));
  MatmulDims transposed{5, 8, 16, /*transpose_a=*/true};
  EXPECT_TRUE(is_slow(transposed, Format::kBf16));
}

TEST_F(FakeRefusals, OfAConvolutionsMemory) {
  kernels::ConvDims d{{2, 8, 5, 5}, 8, {}, 1};
  d.window = {3, 3};
  const auto plan =
      first_plan({cuda::ConvolutionPass::kWeights, d, true, Format::kBf16, Format::kBf16});
  ASSERT_TRUE(plan.has_value());
  ASSERT_GT(plan->workspace_bytes(), 0);
  const auto run = [&](void* x, void* dw, void* dy, void* workspace) {
    return [=, &plan] { plan->run(x, dw, dy, nullptr, workspace); };
  };
  EXPECT_EQ(refusal_of(run(a_, b_, c_, w_)), "");
  expect_refused("The workspace pointer must be aligned to at least a multiple of 256 bytes",
                 run(a_, b_, c_, behind(w_, 64)));
  expect_refused("The workspace pointer is NULL", run(a_, b_, c_, nullptr));
  expect_refused("The workspace takes", run(a_, b_, c_, behind(w_, kRoom - 256)));
  expect_refused("The tensor 1 pointer is NULL", run(nullptr, b_, c_, w_));
  expect_refused("The tensor 2 pointer must be aligned to at least a multiple of 16 bytes",
                 run(a_, behind(b_, 8), c_, w_));
  expect_refused("The tensor 3 takes", run(a_, b_, behind(c_, kRoom - 16), w_));
  try {  // the error includes the library's message from cudnnGetLastErrorString
    run(a_, b_, c_, behind(w_, 64))();
    FAIL() << "a workspace at 64 bytes was taken";
  } catch (const CudaError& e) {
    EXPECT_EQ(e.code(), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    EXPECT_NE(std::string(e.what()).find("got misalignment of 64 byte(s)"), std::string::npos)
        << e.what();
  }
}

// The workspace is NaN in every type, so that one of our buffers in the same memory would be
// overwritten visibly.
TEST_F(FakeRefusals, APlanAndAProductBeginWithNan) {
  const auto expect_nan = [&](int64_t bytes) {
    std::vector<unsigned char> found(static_cast<size_t>(bytes));
    std::memcpy(found.data(), w_, found.size());  // device memory is host memory here
    EXPECT_TRUE(found == std::vector<unsigned char>(found.size(), 0xFF));
  };
  const auto clear = [&] {
    cuda::check(cudaMemsetAsync(w_, 0, kRoom, device_.stream()), "clearing");
  };
  clear();
  const cuda::Matmul product(device_, MatmulDims{4, 8, 16});
  product.run(a_, b_, {}, c_, w_);
  device_.synchronize();
  expect_nan(product.workspace_bytes());
  clear();
  kernels::ConvDims d{{2, 8, 5, 5}, 8, {}, 1};
  d.window = {3, 3};
  const auto plan =
      first_plan({cuda::ConvolutionPass::kForward, d, true, Format::kBf16, Format::kBf16});
  ASSERT_TRUE(plan.has_value());
  plan->run(a_, b_, c_, nullptr, w_);
  device_.synchronize();
  expect_nan(plan->workspace_bytes());
}

TEST_F(FakeRefusals, OfTheRuntime) {
  std::vector<std::byte> host(static_cast<size_t>(2 * kRoom));
  const auto copy = [&](void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, size, kind, device_.stream());
  };
  EXPECT_EQ(copy(a_, host.data(), kRoom, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(a_, host.data(), kRoom + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(nullptr, host.data(), 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), host.data(), 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), b_, kRoom, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(a_, 0, kRoom + 1, device_.stream()), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_EQ(copy(a_, behind(a_, 64), 64, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(copy(a_, behind(a_, 64), 65, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(behind(a_, 64), a_, 65, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a_) % 512, 256U) << "no more aligned than is promised";
  device_.synchronize();
}

TEST_F(FakeRefusals, OfMemoryThatIsFreedInARecording) {
  cuda::DeviceMemory memory = device_.allocate(16);
  cuda::PinnedMemory pinned = cuda::make_pinned(16);
  const auto record = [&](const std::function<cudaError_t()>& f, cudaError_t end) {
    cuda::check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeThreadLocal),
                "recording");
    const cudaError_t status = f();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(device_.stream(), &graph), end);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return status;
  };
  EXPECT_EQ(record([&] { return cudaFree(memory.get()); }, cudaErrorStreamCaptureInvalidated),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(record([&] { return cudaFreeHost(pinned.get()); }, cudaErrorStreamCaptureInvalidated),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(record([] { return cudaSuccess; }, cudaSuccess), cudaSuccess);
}

// Each problem has an engine on the fakes exactly if cuDNN's documents promise one.
TEST_F(FakeRefusals, OfAttentionWithoutAnEngine) {
  const auto has_engine = [&](bool backward, int64_t head, int64_t length) {
    kernels::AttentionDims d{};
    d.N = d.H = 1;
    d.Tq = d.Tk = length;
    d.D = d.q_row = d.kv_row = head;
    d.scale = 1;
    const cuda::AttentionGraph graph({backward, d}, head, device_.dnn());
    return !cuda::propose_engines(graph.graph(), CUDNN_HEUR_MODE_A).empty();
  };
  for (const bool backward : {false, true}) {
    EXPECT_TRUE(has_engine(backward, 16, 2));
    EXPECT_FALSE(has_engine(backward, 12, 2));
    EXPECT_EQ(has_engine(backward, 16, 1), !backward);
  }
}

// An H100 showed this fault first: the arena had its workspace at a multiple of 64 bytes, and
// cuBLASLt refused every product.
TEST(WorkspaceOfTheArena, IsRefusedAtAMultipleOf64) {
  cuda::CudaBackend cuda(0);
  EXPECT_EQ(cuda.alignment(), 256);
  const testing::WorkspaceCase c;
  EXPECT_NO_THROW(run_in_workspace(cuda, c, {}));
  for (const int64_t offset : {64, 128, 192}) {
    EXPECT_NE(refusal_of([&] {
                run_in_workspace(cuda, c, {offset, {}});
              }).find("The workspace pointer must be aligned to at least a multiple of 256"),
              std::string::npos)
        << offset;
  }
  EXPECT_NO_THROW(run_in_workspace(cuda, c, {256, {}}));
}

TEST(WorkspaceOfTheArena, MayHoldAnything) {
  cuda::CudaBackend cuda(0);
  testing::expect_right_in_any_workspace(cuda);
}

}  // namespace
}  // namespace trainyard
