// Catches: a head that is computed in several chunks of rows and gives another result: sums that
// restart with each chunk, a last chunk of another size, rows that read a neighbour's padding. A
// head with an odd number of classes whose products have odd sizes. Also a product whose operand is
// converted to 16 bits into rows wider than its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator.h"
#include "src/ops/head_loss.h"
#include "src/runtime/algorithms.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/head_loss.h"
#include "src/runtime/forwarding_backend.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

/// The emulated GPU, with heads in chunks of at most `scores_bytes_max` bytes. Heads run on a
/// stream of their own, so nothing is recorded.
class InChunks final : public ForwardingBackend {
 public:
  explicit InChunks(int64_t scores_bytes_max)
      : ForwardingBackend(std::make_unique<cuda::CudaBackend>(0)),
        scores_bytes_max_(scores_bytes_max) {}
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    if (node.op != head_loss_op()) return ForwardingBackend::prepare(graph, node);
    ++heads;
    return cuda::make_head_loss(device_, graph, node, scores_bytes_max_);
  }
  std::unique_ptr<Recording> record(const std::function<void()>& /*submit*/) override {
    return nullptr;
  }
  /// Notes the products of the heads.
  void note_products(std::shared_ptr<Algorithms> algorithms) {
    device_.use_algorithms(std::move(algorithms));
  }
  int64_t heads = 0;

 private:
  int64_t scores_bytes_max_;
  cuda::Device device_{0};
};

/// Takes the library's first proposals, and keeps the sizes of the products.
class Products final : public Algorithms {
 public:
  /// c [m, n] = op(a) op(b).
  struct Sizes {
    int64_t m = 0, n = 0, k = 0, transpose_a = 0, transpose_b = 0;
  };
  Products() : Algorithms(Options{{}, /*times=*/false}) {}
  bool choose(const std::string&, const std::string& key,
              const AlgorithmProblem& problem) override {
    Sizes s;
    const size_t sizes = key.find("sizes="), transposed = key.find("transposed=");
    EXPECT_EQ(std::sscanf(key.c_str() + sizes, "sizes=%ld,%ld,%ld", &s.m, &s.n, &s.k), 3) << key;
    EXPECT_EQ(
        std::sscanf(key.c_str() + transposed, "transposed=%ld,%ld", &s.transpose_a, &s.transpose_b),
        2)
        << key;
    made.push_back(s);
    return problem.take_first().has_value();
  }
  std::vector<Sizes> made;
};

testing::CaseGraph head(int64_t rows, int64_t features = 6, int64_t classes = 11) {
  std::vector<double> weights(static_cast<size_t>(classes));
  for (size_t k = 0; k < weights.size(); ++k) weights[k] = 0.5 + 0.25 * static_cast<double>(k);
  const Attributes loss{
      {"label_smoothing", 0.125}, {"class_weights", weights}, {"ignore_index", int64_t{3}}};
  testing::CaseBuilder b(DType::kF32);
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {rows, features})});
  const TensorId z = b.one("z", "Gemm", {{"transB", int64_t{1}}},
                           {x, b.parameter("w", {classes, features}), b.parameter("b", {classes})});
  std::map<TensorId, TensorId> gradients;
  return testing::with_gradients(
      b.finish_with_loss(b.node("loss", "SoftmaxCrossEntropyLoss", loss,
                                {z, b.labels("labels", rows, classes)}, 2)[0]),
      &gradients);
}

TEST(HeadInChunks, GivesWhatOneChunkGives) {
  testing::RunOptions options;
  options.keep_all = false;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const int64_t rows : {100, 128, 129, 256, 300}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", " + std::to_string(rows) + " rows");
      options.precision = precision;
      const testing::CaseGraph c = head(rows);
      InChunks small(1), whole(cuda::kScoresBytesMost);
      const testing::CaseResult got = testing::run_case(c, small, options);
      const testing::CaseResult expected = testing::run_case(c, whole, options);
      EXPECT_EQ(small.heads, 1);
      EXPECT_EQ(whole.heads, 1);
      ASSERT_EQ(got.values.size(), expected.values.size());
      EXPECT_EQ(got.values.size(), 4u);  // the loss and three gradients
      for (const auto& [name, values] : expected.values) {
        const std::vector<double>& in_chunks = got.values.at(name);
        const bool is_summed = name.starts_with("z/");  // the gradients dw and db
        double scale = 1e-3;
        for (const double v : values) scale = std::max(scale, std::abs(v));
        for (size_t i = 0; i < values.size(); ++i) {
          if (is_summed) {  // chunks add in another order
            ASSERT_NEAR(in_chunks[i], values[i], 1e-5 * scale) << name << "[" << i << "]";
          } else {
            ASSERT_EQ(in_chunks[i], values[i]) << name << "[" << i << "]";
          }
        }
      }
    }
  }
}

// The library's fast kernels for 16 bits and TF32 read 16 bytes at a time, so the contiguous side
// of each matrix must be a multiple of 8 elements (CUTLASS issue 75, and cuBLAS's documentation of
// tensor cores).
TEST(HeadInChunks, ProductsOfAnOddVocabularyHaveNoOddSizes) {
  testing::RunOptions options;
  options.keep_all = false;
  for (const int64_t classes : {11, 65, 131}) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kTf32}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", " + std::to_string(classes));
      options.precision = precision;
      InChunks backend(1);
      const auto products = std::make_shared<Products>();
      backend.note_products(products);
      testing::run_case(head(300, 16, classes), backend, options);
      ASSERT_GE(products->made.size(), 9u);  // three kinds of products, in three kinds of chunks
      for (const Products::Sizes& s : products->made) {
        for (const int64_t contiguous :
             {s.transpose_a == 0 ? s.k : s.m, s.transpose_b == 0 ? s.n : s.k, s.n}) {
          EXPECT_EQ(contiguous % 8, 0) << s.m << " x " << s.n << " x " << s.k;
        }
      }
    }
  }
}

// Products of padded classes compute more than there is. The weights' gradient is put together from
// two products.
TEST(HeadInChunks, PaddingAddsNothing) {
  testing::RunOptions options;
  options.keep_all = false;
  for (const int64_t classes : {11, 64, 131}) {
    const testing::CaseGraph c = head(200, 16, classes);
    options.precision = Precision::kFp32;
    InChunks strict(1);
    const testing::CaseResult expected = testing::run_case(c, strict, options);
    for (const auto& [precision, error] :
         {std::pair{Precision::kTf32, 0.004}, std::pair{Precision::kBf16, 0.03}}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", " + std::to_string(classes));
      options.precision = precision;
      InChunks backend(1);
      const testing::CaseResult got = testing::run_case(c, backend, options);
      for (const auto& [name, values] : expected.values) {
        double scale = 0;
        for (const double v : values) scale = std::max(scale, std::abs(v));
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(got.values.at(name)[i], values[i], error * scale) << name << "[" << i << "]";
        }
      }
    }
  }
}

// A long row is read once and then stays in shared memory, if the GPU gives a block so much. Both
// kernels compute the same function, and neither depends on the chunks.
TEST(HeadInChunks, LongRowsStayInSharedMemory) {
  testing::RunOptions options;
  options.keep_all = false;
  const testing::CaseGraph c = head(130, 8, 9001);
  for (const auto& [precision, error] :
       {std::pair{Precision::kFp32, 1e-5}, std::pair{Precision::kBf16, 0.02},
        std::pair{Precision::kFp16, 0.01}}) {
    SCOPED_TRACE(name_of(precision));
    options.precision = precision;
    InChunks small(1), whole(cuda::kScoresBytesMost);
    const testing::CaseResult kept = testing::run_case(c, small, options);
    const testing::CaseResult at_once = testing::run_case(c, whole, options);
    kernels::cuda::emulator::set_raised_max(0);
    const testing::CaseResult read_twice = testing::run_case(c, small, options);
    kernels::cuda::emulator::set_raised_max(227 << 10);
    for (const auto& [name, values] : read_twice.values) {
      double scale = 0;
      for (const double v : values) scale = std::max(scale, std::abs(v));
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(kept.values.at(name)[i], values[i], error * scale) << name << "[" << i << "]";
        if (name.starts_with("z/")) continue;  // dw and db are sums over chunks
        ASSERT_EQ(kept.values.at(name)[i], at_once.values.at(name)[i]) << name << "[" << i << "]";
      }
    }
  }
}

// Without chunks, the scores of a whole batch would be 1,100 rows of 64 numbers in memory.
TEST(HeadInChunks, HoldsTheScoresOfOneChunk) {
  const testing::CaseGraph c = head(1100);
  testing::RunOptions options;
  options.keep_all = false;
  InChunks small(1), whole(cuda::kScoresBytesMost);
  const int64_t in_chunks = testing::run_case(c, small, options).planned_bytes;
  EXPECT_LE(in_chunks + (1100 - 128) * 64 * 4 - 9 * 256,
            testing::run_case(c, whole, options).planned_bytes);
}

// 16-bit rows of 3 or 11 numbers are not aligned, but the library's fast kernels need 16 bytes.
TEST(Product, NarrowsOddRowsIntoPaddedOnes) {
  EXPECT_EQ(cuda::workspace_row(8), 8);
  EXPECT_EQ(cuda::workspace_row(768), 768);
  EXPECT_EQ(cuda::workspace_row(11), 64);
  EXPECT_EQ(cuda::workspace_row(50257), 50304);

  const cuda::Device device(0);
  using kernels::cuda::Format;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      cuda::MatmulDims dims{5, 7, 3, transpose_a, transpose_b};
      const cuda::Product product(device, dims, Format::kF32, Format::kF32, Format::kBf16);
      const int64_t rows = (transpose_a ? 3 : 5) + (transpose_b ? 7 : 3);
      EXPECT_GE(product.workspace_bytes(), rows * 64 * 2);
      std::vector<float> a(15), b(21);
      for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
      for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7) - 3;
      const auto left = device.upload(std::as_bytes(std::span(a))),
                 right = device.upload(std::as_bytes(std::span(b))), result = device.allocate(70),
                 workspace = device.allocate(product.workspace_bytes());
      product.run({left.get()}, {right.get()}, {}, {result.get(), Format::kBf16}, workspace.get());
      device.synchronize();
      // device memory is host memory here
      const auto* const c = static_cast<const math::Bf16*>(result.get());
      for (size_t i = 0; i < 5; ++i) {
        for (size_t j = 0; j < 7; ++j) {
          float sum = 0;
          for (size_t k = 0; k < 3; ++k) {
            sum += a[transpose_a ? k * 5 + i : i * 3 + k] * b[transpose_b ? j * 3 + k : k * 7 + j];
          }
          ASSERT_EQ(math::widen(c[i * 7 + j]), sum) << i << ", " << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard
