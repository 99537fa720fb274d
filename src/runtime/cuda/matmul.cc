#include "src/runtime/cuda/matmul.h"

#include <string>

#include "src/base/check.h"

namespace trainyard::cuda {
namespace {

MatrixLayout column_major(int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  const cublasStatus_t status = cublasLtMatrixLayoutCreate(
      &layout, CUDA_R_32F, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows);
  MatrixLayout owner(layout);
  check(status, "cublasLtMatrixLayoutCreate");
  return owner;
}

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute " + std::to_string(attribute));
}

template <typename T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute " + std::to_string(attribute));
}

}  // namespace

MatmulDescription::MatmulDescription(const MatmulDims& d) {
  TRAINYARD_CHECK(d.m > 0 && d.n > 0 && d.k > 0,
                  "matmul " + std::to_string(d.m) + "x" + std::to_string(d.n) + "x" +
                      std::to_string(d.k) + ": every dimension must be above 0");
  cublasLtMatmulDesc_t created = nullptr;
  const cublasStatus_t status = cublasLtMatmulDescCreate(&created, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  operation.reset(created);
  check(status, "cublasLtMatmulDescCreate");
  set(created, CUBLASLT_MATMUL_DESC_TRANSA, d.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(created, CUBLASLT_MATMUL_DESC_TRANSB, d.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(created, CUBLASLT_MATMUL_DESC_EPILOGUE,
      d.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  // A row-major [r, c] matrix is a column-major one of c rows and r columns.
  b = d.transpose_b ? column_major(d.k, d.n) : column_major(d.n, d.k);
  a = d.transpose_a ? column_major(d.m, d.k) : column_major(d.k, d.m);
  c = column_major(d.n, d.m);
}

Matmul::Matmul(const Device& device, const MatmulDims& dims)
    : device_(device), description_(dims), bias_(dims.bias) {
  cublasLtMatmulPreference_t created = nullptr;
  const cublasStatus_t status = cublasLtMatmulPreferenceCreate(&created);
  const MatmulPreference preference(created);
  check(status, "cublasLtMatmulPreferenceCreate");
  prefer(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<uint64_t>(kMatmulWorkspaceMax));
  // Split sums are joined from the workspace, by a kernel of fixed order.
  prefer(created, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                               CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(
            device.blas(), description_.operation.get(), description_.b.get(), description_.a.get(),
            description_.c.get(), description_.c.get(), created, 1, &result, &found),
        "choosing an algorithm for a product of " + std::to_string(dims.m) + "x" +
            std::to_string(dims.n) + "x" + std::to_string(dims.k));
  TRAINYARD_CHECK(found == 1, "cuBLASLt proposes no algorithm within the workspace");
  algorithm_ = result.algo;
  workspace_bytes_ = static_cast<int64_t>(result.workspaceSize);
}

void Matmul::run(const float* a, const float* b, const float* bias, float* c,
                 void* workspace) const {
  if (bias_) set(description_.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, zero = 0;  // zero: c is assigned, whatever it held
  check(cublasLtMatmul(device_.blas(), description_.operation.get(), &one, b, description_.b.get(),
                       a, description_.a.get(), &zero, c, description_.c.get(), c,
                       description_.c.get(), &algorithm_, workspace,
                       static_cast<size_t>(workspace_bytes_), device_.stream()),
        "cublasLtMatmul");
}

}  // namespace trainyard::cuda
