// Catches: a CUDA kernel that computes something else than the reference loops. Needs a GPU; skips
// without one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/math/philox.h"
#include "src/plan/program.h"
#include "src/runtime/cuda_module.h"
#include "src/runtime/executor.h"

namespace trainyard {
namespace {

constexpr uint64_t kSeed = 20260101;

/// One node on inputs drawn from N(0, 1)-like numbers; every output is read back.
struct Case {
  std::string op;
  Attributes attributes;
  std::vector<Shape> inputs;
  double tolerance;  // absolute, on values of order 1; why is said where the case is made
};

std::vector<float> draw(int64_t count, uint32_t stream) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    // The sum of two uniform numbers, in [-2, 2): reaches both tails of every activation.
    const auto a = math::uniform01<float>(math::philox_u32(kSeed, stream, 0, 2 * i));
    const auto b = math::uniform01<float>(math::philox_u32(kSeed, stream, 0, 2 * i + 1));
    values.push_back(2 * (a + b) - 2);
  }
  return values;
}

std::vector<std::vector<float>> run(const Case& c, Backend& backend) {
  Graph graph;
  std::vector<TensorId> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    TensorInfo info;
    info.name = "x" + std::to_string(i);
    info.type = {c.inputs[i], DType::kF32};
    info.role = Role::kInput;
    inputs.push_back(graph.add_tensor(std::move(info)));
  }
  const std::vector<std::string> names = c.op == "GemmGrad"
                                             ? std::vector<std::string>{"y0", "y1", "y2"}
                                             : std::vector<std::string>{"y0"};
  const NodeId node =
      graph.add_node("node", get_op(c.op), c.attributes, inputs, names, Phase::kForward).value();
  const std::vector<TensorId> outputs = graph.node(node).outputs;
  for (const TensorId id : outputs) graph.mark_output(id);

  PreparedProgram prepared(compile(std::move(graph), {}), backend);
  Arena arena(backend, prepared.program().persistent_bytes, prepared.program().transient_bytes,
              prepared.workspace_bytes());
  Executor executor(std::move(prepared), arena);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<float> values = draw(c.inputs[i].elements(), static_cast<uint32_t>(i));
    executor.write(inputs[i], std::as_bytes(std::span(values)));
  }
  executor.run();
  backend.synchronize();
  std::vector<std::vector<float>> results;
  for (const TensorId id : outputs) {
    std::vector<float> values(
        static_cast<size_t>(executor.program().graph.tensor(id).type.shape.elements()));
    executor.read(id, std::as_writable_bytes(std::span(values)));
    results.push_back(std::move(values));
  }
  return results;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  // Sizes around a block of 256 threads, and one that needs the grid-stride loop's tail.
  for (const int64_t n : {1, 31, 33, 256, 1025}) {
    // The host's and the GPU's exp, tanh and erf differ by a few units in the last place.
    for (const char* op : {"Relu", "Sigmoid", "Tanh", "Gelu"}) {
      all.push_back({op, {}, {Shape{n, 3}}, 2e-6});
      all.push_back({std::string(op) + "Grad", {}, {Shape{n, 3}, Shape{n, 3}}, 4e-6});
    }
    const Attributes tanh_form = {{"approximate", std::string("tanh")}};
    all.push_back({"Gelu", tanh_form, {Shape{n, 3}}, 2e-6});
    all.push_back({"GeluGrad", tanh_form, {Shape{n, 3}, Shape{n, 3}}, 4e-6});
  }
  const Attributes stored = {{"transB", int64_t{1}}};
  for (const auto& [n, f, k] : {std::array<int64_t, 3>{1, 1, 1}, {31, 33, 10}, {64, 784, 512}}) {
    // Sums of f, k or n products of order 1 in another order: sqrt(terms) roundings of 2^-24 each,
    // times a margin.
    const double tolerance = 1e-6 * static_cast<double>(std::max({n, f, k}));
    all.push_back({"Gemm", stored, {Shape{n, f}, Shape{k, f}, Shape{k}}, tolerance});
    all.push_back({"Gemm", stored, {Shape{n, f}, Shape{k, f}}, tolerance});
    all.push_back({"GemmGrad", stored, {Shape{n, f}, Shape{k, f}, Shape{n, k}}, tolerance});
  }
  return all;
}

// Without a GPU too: the cases themselves are well formed, and the reference has every op that the
// module has.
TEST(CudaParity, EveryCaseRunsOnTheReference) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const Case& c : cases()) {
    if (!reference->has_kernel(c.op)) GTEST_SKIP() << "no reference kernel of " << c.op;
    for (const auto& output : run(c, *reference)) {
      for (const float value : output) ASSERT_TRUE(std::isfinite(value)) << c.op;
    }
  }
}

TEST(CudaParity, AgreesWithTheReferenceLoops) {
  auto cuda = open_cuda_backend(TRAINYARD_TEST_CUDA_MODULE, 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const Case& c : cases()) {
    ASSERT_TRUE((*cuda)->has_kernel(c.op)) << c.op;
    const auto expected = run(c, *reference);
    const auto actual = run(c, **cuda);
    const auto again = run(c, **cuda);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(actual, again) << c.op << " does not repeat bit by bit";
    for (size_t o = 0; o < expected.size(); ++o) {
      ASSERT_EQ(actual[o].size(), expected[o].size());
      double worst = 0;
      for (size_t i = 0; i < expected[o].size(); ++i) {
        ASSERT_FALSE(std::isnan(actual[o][i])) << c.op << " output " << o << " element " << i;
        worst = std::max(worst, std::abs(double{actual[o][i]} - double{expected[o][i]}));
      }
      EXPECT_LE(worst, c.tolerance) << c.op << " " << c.inputs[0].to_string() << " output " << o;
    }
  }
}

TEST(CudaBackend, ZeroesItsMemoryAndCopiesBothWays) {
  auto cuda = open_cuda_backend(TRAINYARD_TEST_CUDA_MODULE, 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  Backend& backend = **cuda;
  std::vector<unsigned char> host(1000, 7);
  const auto bytes = static_cast<int64_t>(host.size());
  void* const device = backend.allocate(bytes);
  backend.copy_to_host(host.data(), device, bytes);
  EXPECT_EQ(host, std::vector<unsigned char>(1000, 0));
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i);
  backend.copy_to_device(device, host.data(), bytes);
  std::vector<unsigned char> back(host.size());
  backend.copy_to_host(back.data(), device, bytes);
  EXPECT_EQ(back, host);
  backend.release(device);
}

TEST(CudaBackend, ThrowsBadAllocAndLivesOn) {
  auto cuda = open_cuda_backend(TRAINYARD_TEST_CUDA_MODULE, 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  EXPECT_THROW((*cuda)->allocate(int64_t{1} << 50), std::bad_alloc);
  (*cuda)->release((*cuda)->allocate(64));
  (*cuda)->synchronize();
}

}  // namespace
}  // namespace trainyard
