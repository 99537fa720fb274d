// Catches: a transposed, swapped or wrongly strided operand in our description for cuBLASLt.
// Descriptors need no GPU: a naive loop here computes the described product with cuBLASLt's
// column-major meaning.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/runtime/cuda/cublaslt_matmul.h"

namespace trainyard::cuda {
namespace {

struct ColumnMajor {
  int64_t rows, columns, leading;
  explicit ColumnMajor(cublasLtMatrixLayout_t layout) {
    uint64_t r = 0, c = 0;
    get(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, r);
    get(layout, CUBLASLT_MATRIX_LAYOUT_COLS, c);
    get(layout, CUBLASLT_MATRIX_LAYOUT_LD, leading);
    rows = static_cast<int64_t>(r);
    columns = static_cast<int64_t>(c);
  }
  template <typename T>
  static void get(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                  T& value) {
    size_t written = 0;
    check(cublasLtMatrixLayoutGetAttribute(layout, attribute, &value, sizeof value, &written),
          "cublasLtMatrixLayoutGetAttribute");
    TRAINYARD_CHECK(written == sizeof value, "size of a layout attribute");
  }
};

template <typename T>
T attribute(const MatmulDescription& d, cublasLtMatmulDescAttributes_t which) {
  T value{};
  size_t written = 0;
  check(cublasLtMatmulDescGetAttribute(d.operation.get(), which, &value, sizeof value, &written),
        "cublasLtMatmulDescGetAttribute");
  TRAINYARD_CHECK(written == sizeof value, "size of a matmul attribute");
  return value;
}

/// The result that cublasLtMatmul(A = our b, B = our a) would write.
std::vector<float> emulate(const MatmulDescription& d, const std::vector<float>& our_a,
                           const std::vector<float>& our_b, const std::vector<float>& bias) {
  const bool transpose_first = attribute<int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  const bool transpose_second = attribute<int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const bool with_bias =
      attribute<uint32_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_BIAS;
  const ColumnMajor first(d.b.get()), second(d.a.get()), result(d.c.get());
  const int64_t m = result.rows, n = result.columns;
  const int64_t k = transpose_first ? first.rows : first.columns;
  EXPECT_EQ(transpose_first ? first.columns : first.rows, m);
  EXPECT_EQ(transpose_second ? second.columns : second.rows, k);
  EXPECT_EQ(transpose_second ? second.rows : second.columns, n);
  std::vector<float> c(static_cast<size_t>(result.leading * n), -1.0f);
  const auto at = [](const std::vector<float>& v, int64_t row, int64_t column, int64_t leading) {
    return v.at(static_cast<size_t>(row + column * leading));
  };
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      float sum = with_bias ? bias.at(static_cast<size_t>(i)) : 0.0f;
      for (int64_t p = 0; p < k; ++p) {
        const float x =
            transpose_first ? at(our_b, p, i, first.leading) : at(our_b, i, p, first.leading);
        const float y =
            transpose_second ? at(our_a, j, p, second.leading) : at(our_a, p, j, second.leading);
        sum += x * y;
      }
      c[static_cast<size_t>(i + j * result.leading)] = sum;
    }
  }
  return c;
}

/// The same product by its definition, in row-major order. The values are small integers, so that
/// every order of summation gives the same result.
std::vector<float> expected(const MatmulDims& d, const std::vector<float>& a,
                            const std::vector<float>& b, const std::vector<float>& bias) {
  std::vector<float> c;
  for (int64_t i = 0; i < d.m; ++i) {
    for (int64_t j = 0; j < d.n; ++j) {
      float sum = d.bias ? bias.at(static_cast<size_t>(j)) : 0.0f;
      for (int64_t p = 0; p < d.k; ++p) {
        sum += a.at(static_cast<size_t>(d.transpose_a ? p * d.m + i : i * d.k + p)) *
               b.at(static_cast<size_t>(d.transpose_b ? j * d.k + p : p * d.n + j));
      }
      c.push_back(sum);
    }
  }
  return c;
}

std::vector<float> whole_numbers(int64_t count, int64_t step) {
  std::vector<float> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(static_cast<float>(i * step % 7 - 3));
  return v;
}

TEST(MatmulDescription, DescribesTheRowMajorProduct) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool bias : {false, true}) {
        const MatmulDims dims{3, 5, 4, transpose_a, transpose_b, bias};
        const auto a = whole_numbers(dims.m * dims.k, 3);
        const auto b = whole_numbers(dims.k * dims.n, 5);
        const auto v = whole_numbers(dims.n, 2);
        EXPECT_EQ(emulate(MatmulDescription(dims), a, b, v), expected(dims, a, b, v))
            << "transpose_a " << transpose_a << ", transpose_b " << transpose_b << ", bias "
            << bias;
      }
    }
  }
}

TEST(MatmulDescription, NamesTheEpilogueAndItsMatrix) {
  const auto described = [](Epilogue epilogue, bool bias) {
    MatmulDims dims{3, 16, 4, false, true, bias};
    dims.epilogue = epilogue;
    return MatmulDescription(dims);
  };
  const auto epilogue_of = [](const MatmulDescription& d) {
    return attribute<uint32_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE);
  };
  EXPECT_EQ(epilogue_of(described(Epilogue::kGelu, true)), CUBLASLT_EPILOGUE_GELU_BIAS);
  EXPECT_EQ(epilogue_of(described(Epilogue::kGelu, false)), CUBLASLT_EPILOGUE_GELU);
  const MatmulDescription kept = described(Epilogue::kGeluKept, true);
  EXPECT_EQ(epilogue_of(kept), CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  EXPECT_EQ(attribute<int64_t>(kept, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 16);
  const MatmulDescription gradient = described(Epilogue::kGeluGrad, false);
  EXPECT_EQ(epilogue_of(gradient), CUBLASLT_EPILOGUE_DGELU);
  EXPECT_EQ(attribute<int64_t>(gradient, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 16);
  EXPECT_EQ(epilogue_of(described(Epilogue::kRelu, true)), CUBLASLT_EPILOGUE_RELU_BIAS);
  EXPECT_EQ(epilogue_of(described(Epilogue::kRelu, false)), CUBLASLT_EPILOGUE_RELU);
  const MatmulDescription bits = described(Epilogue::kReluKept, true);
  EXPECT_EQ(epilogue_of(bits), CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  EXPECT_EQ(attribute<int64_t>(bits, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 128);
  const MatmulDescription mask = described(Epilogue::kReluGrad, false);
  EXPECT_EQ(epilogue_of(mask), CUBLASLT_EPILOGUE_DRELU);
  EXPECT_EQ(attribute<int64_t>(mask, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 128);
  const MatmulDescription sums = described(Epilogue::kSumsOfA, false);
  EXPECT_EQ(epilogue_of(sums), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(attribute<int32_t>(sums, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), CUDA_R_32F);
}

TEST(MatmulDescription, RoundsToTf32WhereAskedAndOfF32Alone) {
  using kernels::cuda::Format;
  const auto compute = [](bool tf32, Format operands) {
    MatmulDims dims{3, 5, 4};
    dims.tf32 = tf32;
    dims.operands = operands;
    return attribute<cublasComputeType_t>(MatmulDescription(dims),
                                          CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  };
  EXPECT_EQ(compute(true, Format::kF32), CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(compute(false, Format::kF32), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(compute(true, Format::kBf16), CUBLAS_COMPUTE_32F);
}

TEST(MatmulDescription, RefusesAnEmptyProduct) {
  EXPECT_THROW(MatmulDescription(MatmulDims{0, 5, 4}), InvariantError);
}

TEST(Check, NamesTheCallTheNumberAndTheReason) {
  try {
    check(cudaErrorInvalidValue, "copying to the GPU");
    FAIL() << "nothing was thrown";
  } catch (const CudaError& e) {
    EXPECT_EQ(e.code(), cudaErrorInvalidValue);
    EXPECT_EQ(std::string(e.what()), "copying to the GPU: invalid argument (error 1)");
  }
}

}  // namespace
}  // namespace trainyard::cuda
