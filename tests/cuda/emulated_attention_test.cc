// Catches: a cuDNN graph that does not compute the op's attention, but another mask, scale, stride
// or part of a batch; attention in 16 bits that does not run on cuDNN, or runs on it where it must
// not. The fake computes the graph as described (fake_cudnn_graph.h); the reference computes in
// double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/math/philox.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/fused_attention.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/parity.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard::cuda {
namespace {

using kernels::AttentionDims;
using kernels::cuda::Format;
using testing::WorkKind;

/// Allocates the emulated device's memory, which the host can access; the fake libraries refuse any
/// other memory.
template <typename T>
struct DeviceAllocator {
  using value_type = T;
  T* allocate(size_t count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t /*count*/) noexcept { (void)cudaFree(memory); }
  bool operator==(const DeviceAllocator&) const = default;
};
template <typename T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

/// A tensor in 16 bits, with access to its values in double. It starts as NaN unless it is filled.
struct Tensor {
  Format format;
  DeviceVector<uint16_t> stored;
  Tensor(Format f, int64_t count) : format(f), stored(static_cast<size_t>(count), 0x7FFF) {}
  void fill(uint64_t seed) {
    for (size_t i = 0; i < stored.size(); ++i) {
      const double u = math::philox_u32(seed, 0, 7, i) / 4294967296.0;
      testing::write_element(format, stored.data(), static_cast<int64_t>(i),
                             static_cast<float>(4 * u - 2));
    }
  }
  std::vector<double> wide() const {
    std::vector<double> values(stored.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = testing::read_element(format, stored.data(), static_cast<int64_t>(i));
    }
    return values;
  }
};

struct AttentionCase {
  const char* name;
  int64_t N, H, Tq, Tk, D;
  bool causal, packed;
  Format format = Format::kBf16;
};
const AttentionCase kCases[] = {
    {"packed causal", 2, 3, 17, 17, 16, true, true},
    {"packed", 2, 2, 9, 9, 8, false, true, Format::kF16},
    {"causal", 1, 2, 33, 33, 8, true, false},
    {"more keys", 2, 2, 5, 13, 8, false, false},
    {"more keys causal", 2, 2, 5, 13, 8, true, false, Format::kF16},
    {"more queries causal", 3, 1, 13, 5, 24, true, false},
    {"one query", 2, 2, 1, 7, 8, false, false},
    {"even", 4, 2, 8, 8, 8, true, true},
};

AttentionDims dims_of(const AttentionCase& c) {
  AttentionDims d{};
  d.N = c.N;
  d.H = c.H;
  d.Tq = c.Tq;
  d.Tk = c.Tk;
  d.D = c.D;
  d.q_row = d.kv_row = c.H * c.D * (c.packed ? 3 : 1);
  d.scale = 0.3;
  d.causal = c.causal;
  return d;
}

/// Operands or their gradients; packed ones are all in the first tensor.
struct Operands {
  std::vector<Tensor> tensors;
  void *q, *k, *v;
  explicit Operands(const AttentionCase& c) {
    const int64_t width = c.H * c.D;
    if (c.packed) {
      tensors.emplace_back(c.format, c.N * c.Tq * 3 * width);
      q = tensors[0].stored.data();
      k = tensors[0].stored.data() + width;
      v = tensors[0].stored.data() + 2 * width;
      return;
    }
    for (const int64_t T : {c.Tq, c.Tk, c.Tk}) tensors.emplace_back(c.format, c.N * T * width);
    q = tensors[0].stored.data();
    k = tensors[1].stored.data();
    v = tensors[2].stored.data();
  }
};

/// The same operands in double, with the same packing, and where q, k and v begin.
struct WideOperands {
  std::vector<std::vector<double>> tensors;
  double *q, *k, *v;
  WideOperands(const AttentionCase& c, const Operands& like) {
    for (const Tensor& t : like.tensors) tensors.push_back(t.wide());
    q = tensors[0].data();
    k = c.packed ? q + c.H * c.D : tensors[1].data();
    v = c.packed ? k + c.H * c.D : tensors[2].data();
  }
};

struct Result {
  std::vector<Tensor> tensors;  // y, then the gradients, packed like the operands
  DeviceVector<float> log_sum_exp;
};

Result run_fused(const Device& device, const AttentionCase& c, int64_t workspace_max,
                 const Operands& operands, const Tensor& dy) {
  const AttentionDims d = dims_of(c);
  const auto forward = FusedAttention::find(device, {false, d, c.format});
  const auto backward = FusedAttention::find(device, {true, d, c.format}, workspace_max);
  Result result;
  Tensor y(c.format, c.N * c.Tq * c.H * c.D);
  result.log_sum_exp.assign(static_cast<size_t>(c.N * c.H * c.Tq), std::nanf(""));
  Operands gradients(c);
  if (!forward || !backward) {
    ADD_FAILURE() << "no engine";
    return result;
  }
  const DeviceMemory workspace =
      device.allocate(std::max(forward->workspace_bytes(), backward->workspace_bytes()));
  forward->run(FusedAttention::Forward{operands.q, operands.k, operands.v, y.stored.data(),
                                       result.log_sum_exp.data()},
               workspace.get());
  backward->run(FusedAttention::Backward{operands.q, operands.k, operands.v, y.stored.data(),
                                         result.log_sum_exp.data(), dy.stored.data(), gradients.q,
                                         gradients.k, gradients.v},
                workspace.get());
  device.synchronize();
  result.tensors.push_back(std::move(y));
  for (Tensor& t : gradients.tensors) result.tensors.push_back(std::move(t));
  return result;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double relative_max) {
  ASSERT_EQ(got.size(), expected.size());
  double scale = 1e-6;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - expected[i]), relative_max * scale) << i;
  }
}

TEST(EmulatedAttention, CudnnComputesWhatTheReferenceDoes) {
  const Device device(0);
  for (const AttentionCase& c : kCases) {
    SCOPED_TRACE(c.name);
    Operands operands(c);
    for (size_t i = 0; i < operands.tensors.size(); ++i) operands.tensors[i].fill(i + 1);
    Tensor dy(c.format, c.N * c.Tq * c.H * c.D);
    dy.fill(9);
    const Result got = run_fused(device, c, kAttentionWorkspaceMost, operands, dy);
    if (HasFailure()) return;

    const AttentionDims d = dims_of(c);
    const WideOperands x(c, operands);
    WideOperands dx(c, operands);
    std::vector<double> y(dy.stored.size()), sums(got.log_sum_exp.size());
    const std::vector<double> wide_dy = dy.wide();
    kernels::reference::attention_forward<double>(
        d, {.q = x.q, .k = x.k, .v = x.v, .y = y.data(), .lse = sums.data()});
    kernels::reference::attention_backward<double>(d, {.q = x.q,
                                                       .k = x.k,
                                                       .v = x.v,
                                                       .y = y.data(),
                                                       .lse = sums.data(),
                                                       .dy = wide_dy.data(),
                                                       .dq = dx.q,
                                                       .dk = dx.k,
                                                       .dv = dx.v});
    const double unit = c.format == Format::kBf16 ? 1.0 / 256 : 1.0 / 2048;
    expect_near({got.log_sum_exp.begin(), got.log_sum_exp.end()}, sums, 1e-6);
    expect_near(got.tensors[0].wide(), y, 2 * unit);
    for (size_t i = 0; i < dx.tensors.size(); ++i) {
      expect_near(got.tensors[i + 1].wide(), dx.tensors[i], 4 * unit);
    }
  }
}

// Processing a batch, or one sequence's heads, in parts gives the bits of the whole.
TEST(EmulatedAttention, PartsAreTheWhole) {
  const Device device(0);
  const auto calls = [] { return testing::submitted_works().of(WorkKind::kDnn); };
  for (const AttentionCase& c : {AttentionCase{"", 5, 3, 17, 17, 8, true, true},
                                 AttentionCase{"", 5, 3, 7, 19, 16, false, false, Format::kF16}}) {
    Operands operands(c);
    for (size_t i = 0; i < operands.tensors.size(); ++i) operands.tensors[i].fill(i + 1);
    Tensor dy(c.format, c.N * c.Tq * c.H * c.D);
    dy.fill(9);
    const Result whole = run_fused(device, c, kAttentionWorkspaceMost, operands, dy);
    constexpr int64_t kHead = 128 * 128 * 2;  // bytes of ds for one head
    // The budgets allow two sequences at a time, one, two heads of one sequence, and less than one
    // head.
    const std::pair<int64_t, int64_t> budgets[] = {
        {kHead * 6, 3}, {kHead * 3, 5}, {kHead * 2, 10}, {1, 15}};
    for (const auto& [budget, parts] : budgets) {
      SCOPED_TRACE(budget);
      const int64_t before = calls();
      const Result got = run_fused(device, c, budget, operands, dy);
      EXPECT_EQ(calls() - before, 1 + parts + 1);  // and the trial of the part's plan
      for (size_t i = 0; i < whole.tensors.size(); ++i) {
        EXPECT_EQ(got.tensors[i].stored, whole.tensors[i].stored);
      }
    }
  }
}

TEST(EmulatedAttention, RefusesWhatIsNotForCudnn) {
  const Device device(0);
  const AttentionDims d = dims_of(kCases[0]);
  const auto finds = [&](const AttentionDims& dims, Format format = Format::kBf16) {
    return FusedAttention::find(device, {true, dims, format}) != nullptr;
  };
  EXPECT_TRUE(finds(d));
  EXPECT_FALSE(finds(d, Format::kF32));
  AttentionDims other = d;
  other.dropout = 0.1;
  EXPECT_FALSE(finds(other));
  other = d;
  other.D = 12;  // heads would not begin at multiples of 16 bytes
  EXPECT_FALSE(finds(other));
  other = d;
  other.Tq = other.Tk = 1;
  EXPECT_FALSE(finds(other));
}

/// Restores the fakes' settings at the end of each test.
class AttentionEngines : public ::testing::Test {
 protected:
  ~AttentionEngines() override {
    testing::set_broken_algorithm(-1);
    testing::set_device_capability(9, 0);
    testing::set_dnn_version(CUDNN_VERSION);
  }
  /// The workspace of the plan that is used, by which the fake's engines differ; -1 without a plan.
  static int64_t workspace(bool backward, int64_t most = kAttentionWorkspaceMost) {
    const Device device(0);
    const auto plan =
        FusedAttention::find(device, {backward, dims_of(kCases[0]), Format::kBf16}, most);
    if (plan == nullptr) return -1;
    const AttentionDims d = dims_of(kCases[0]);
    return plan->workspace_bytes() - (backward ? aligned(d.N * d.H * d.Tq * 4) : 0);
  }
  static constexpr int64_t kTensorCores = 512, kBackwards = 1024, kOfBlackwell = 2048;
};

// The first engine that the fake proposes makes a plan, but does not run.
TEST_F(AttentionEngines, AnEngineThatDoesNotRunIsLeftOut) {
  const Device device(0);
  const auto plan = FusedAttention::find(device, {true, dims_of(kCases[0]), Format::kBf16});
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(testing::last_refusal(), "The engine does not run");
}

// cuDNN's heuristics do not propose the engine for the gradient on these GPUs.
TEST_F(AttentionEngines, BlackwellHasOneOfItsOwn) {
  EXPECT_EQ(workspace(true), kTensorCores);
  for (const int capability : {100, 103}) {
    testing::set_device_capability(capability / 10, capability % 10);
    EXPECT_EQ(workspace(true), kOfBlackwell);
    EXPECT_EQ(workspace(false), kTensorCores);
    EXPECT_EQ(workspace(true, 1),
              kOfBlackwell);  // for the whole batch: there is no ds to be stored
  }
  testing::set_broken_algorithm(2);  // that engine
  EXPECT_EQ(workspace(true), kTensorCores);
  testing::set_broken_algorithm(-1);
  testing::set_device_capability(12, 0);
  EXPECT_EQ(workspace(true), kTensorCores);
}

TEST_F(AttentionEngines, TheOneOfBlackwellIsNamedByVersion) {
  const AttentionProblem gradient{true, dims_of(kCases[0]), Format::kBf16};
  const auto named = [&](int capability, size_t version) {
    const auto engines = preferred_engines(gradient, capability, version);
    return engines.size() == 1 ? words_of(engines[0]) : std::to_string(engines.size());
  };
  EXPECT_EQ(named(100, 91801), "cudnn engine=5 24=31 14=2");
  EXPECT_EQ(named(103, 92202), "cudnn engine=5 24=31 14=2");
  EXPECT_EQ(named(103, 92300), "cudnn engine=5 40=3 41=2 24=2 38=0 27=0 14=2");
  EXPECT_EQ(named(110, 91900), "cudnn engine=17 24=31 14=2");
  EXPECT_EQ(named(120, 91900), "0");
  EXPECT_EQ(named(90, 91900), "0");
  EXPECT_TRUE(preferred_engines({false, gradient.dims, Format::kBf16}, 100, 91900).empty());
}

// Gradients of earlier versions could be wrong.
TEST_F(AttentionEngines, AnOldVersionIsNotUsedAndNamed) {
  for (const size_t version : {91600, 91701, 91800}) {
    testing::set_dnn_version(version);
    EXPECT_EQ(workspace(true), -1);
    EXPECT_EQ(workspace(false), -1);
  }
  testing::set_dnn_version(91701);
  EXPECT_EQ(CudaBackend(0).warning(),
            "cuDNN 9.17.1 is too old for attention, whose gradients could be wrong before 9.18.1: "
            "attention in 16 bits runs on slower kernels; install cuDNN 9.18.1 or later");
  testing::set_dnn_version(91801);
  EXPECT_EQ(workspace(true), kTensorCores);
  EXPECT_EQ(CudaBackend(0).warning(), "");
}

// Compiling an engine takes most of a second, so layers of the same shape share a plan.
TEST(EmulatedAttention, OneProblemHasOnePlan) {
  const Device device(0);
  const AttentionDims d = dims_of(kCases[0]);
  const auto first = FusedAttention::find(device, {false, d, Format::kBf16});
  EXPECT_EQ(FusedAttention::find(device, {false, d, Format::kBf16}), first);
  AttentionDims other = d;
  other.scale = 0.25;
  EXPECT_NE(FusedAttention::find(device, {false, other, Format::kBf16}), first);
  EXPECT_NE(FusedAttention::find(device, {false, d, Format::kF16}), first);
}

/// The number of cuDNN calls in one run of a case, forward and backward. An earlier run has tried
/// its engines out.
int64_t cudnn_calls(CudaBackend& cuda, const std::string& name, Precision precision) {
  const auto& cases = testing::graph_cases();
  const auto test = std::ranges::find(cases, name, &testing::GraphCase::name);
  if (test == cases.end()) {
    ADD_FAILURE() << "no case " << name;
    return -1;
  }
  std::map<TensorId, TensorId> gradients;
  const testing::CaseGraph c = testing::with_gradients(test->build(DType::kF32), &gradients);
  testing::RunOptions options;
  options.precision = precision;
  testing::run_case(c, cuda, options);
  const int64_t before = testing::submitted_works().of(WorkKind::kDnn);
  testing::run_case(c, cuda, options);
  return testing::submitted_works().of(WorkKind::kDnn) - before;
}

TEST(EmulatedAttention, GoesToCudnnIn16Bits) {
  CudaBackend cuda(0);
  for (const Precision half : {Precision::kBf16, Precision::kFp16}) {
    EXPECT_EQ(cudnn_calls(cuda, "Attention/eights", half), 2);
    EXPECT_EQ(cudnn_calls(cuda, "Attention/eights_packed", half), 2);
    EXPECT_EQ(cudnn_calls(cuda, "Attention/eights_dropout", half), 0);
  }
  EXPECT_EQ(cudnn_calls(cuda, "Attention/eights", Precision::kFp32), 0);
  EXPECT_EQ(cudnn_calls(cuda, "Attention/eights", Precision::kTf32), 0);
  EXPECT_EQ(cudnn_calls(cuda, "Attention/eights_to_data", Precision::kBf16), 1);  // forward only
}

TEST(EmulatedAttention, RepeatsBitByBit) {
  CudaBackend cuda(0);
  testing::expect_repeats(cuda, Precision::kBf16, "Attention/eights");
}

// Every width, mask, packing and dropout: with dropout 16-bit operands are ours as well.
TEST(EmulatedAttention, OurKernelsOnTensorCoresComputeWhatTheReferenceDoes) {
  CudaBackend cuda(0);
  testing::expect_parity(cuda, Precision::kTf32, testing::Cases::kAll, "Attention/");
  testing::set_graph_engines(false);
  EXPECT_EQ(cudnn_calls(cuda, "Attention/eights", Precision::kBf16), 0);
  testing::expect_parity(cuda, Precision::kBf16, testing::Cases::kAll, "Attention/eights");
  testing::expect_parity(cuda, Precision::kFp16, testing::Cases::kAll, "Attention/dropout");
  testing::set_graph_engines(true);
}

testing::CaseResult attention_result(CudaBackend& cuda, const std::string& name,
                                     Precision precision) {
  const auto& cases = testing::graph_cases();
  const auto test = std::ranges::find(cases, name, &testing::GraphCase::name);
  std::map<TensorId, TensorId> gradients;
  testing::RunOptions options;
  options.precision = precision;
  return testing::run_case(testing::with_gradients(test->build(DType::kF32), &gradients), cuda,
                           options);
}

TEST(EmulatedAttention, OnlyTf32JobsRoundToTf32) {
  CudaBackend cuda(0);
  testing::set_device_capability(7, 5);
  CudaBackend turing(0);  // has no such instructions
  testing::set_device_capability(9, 0);
  for (const std::string name : {"Attention/tiles_causal", "Attention/width_dropout"}) {
    const auto strict = attention_result(cuda, name, Precision::kFp32).values;
    EXPECT_NE(attention_result(cuda, name, Precision::kTf32).values, strict) << name;
    EXPECT_EQ(attention_result(turing, name, Precision::kTf32).values, strict) << name;
  }
  // Wide heads have kernels in F32 only.
  EXPECT_EQ(attention_result(cuda, "Attention/wide_causal", Precision::kTf32).values,
            attention_result(cuda, "Attention/wide_causal", Precision::kFp32).values);
}

}  // namespace
}  // namespace trainyard::cuda
