// The functions of cuBLASLt that the backend calls: what its descriptors say, as plain loops in
// column-major terms. See fake_cuda.h.
#include <cublasLt.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/math/bf16.h"
#include "tests/cuda/fake_cuda.h"

namespace {

/// Attributes by number, as bytes.
using Attributes = std::map<int, std::vector<std::byte>>;

template <typename T>
T get(const Attributes& of, int attribute, T otherwise) {
  const auto it = of.find(attribute);
  if (it == of.end()) return otherwise;
  if (it->second.size() != sizeof(T)) std::abort();
  T value;
  std::memcpy(&value, it->second.data(), sizeof value);
  return value;
}
cublasStatus_t put(Attributes& of, int attribute, const void* value, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(value);
  of[attribute].assign(bytes, bytes + size);
  return CUBLAS_STATUS_SUCCESS;
}

struct Operation {
  Attributes attributes;
};
struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  Attributes attributes;
};

float read(const Layout& l, const void* data, int64_t i) {
  return l.type == CUDA_R_16BF
             ? trainyard::math::widen(static_cast<const trainyard::math::Bf16*>(data)[i])
             : static_cast<const float*>(data)[i];
}
void write(const Layout& l, void* data, int64_t i, float value) {
  if (l.type == CUDA_R_16BF) {
    static_cast<trainyard::math::Bf16*>(data)[i] = trainyard::math::narrow(value);
  } else {
    static_cast<float*>(data)[i] = value;
  }
}
template <typename Opaque, typename T>
T& inside(Opaque* handle) {
  T* p;
  std::memcpy(&p, handle, sizeof p);
  return *p;
}
template <typename Opaque, typename T>
Opaque* wrap(T* p) {
  auto* handle = new Opaque;
  std::memcpy(handle, &p, sizeof p);
  return handle;
}
Operation& of(cublasLtMatmulDesc_t d) { return inside<cublasLtMatmulDescOpaque_t, Operation>(d); }
Layout& of(cublasLtMatrixLayout_t l) { return inside<cublasLtMatrixLayoutOpaque_t, Layout>(l); }

/// Why a product cannot be: what cuBLASLt refuses, too.
bool is_possible(const Operation& op, const Layout& a, const Layout& b, const Layout& c) {
  const bool ta = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSA, 0) == CUBLAS_OP_T;
  const bool tb = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSB, 0) == CUBLAS_OP_T;
  const int64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  if ((tb ? b.columns : b.rows) != k || (tb ? b.rows : b.columns) != c.columns || c.rows != m) {
    return false;
  }
  if (a.type != b.type || (a.type == CUDA_R_32F && c.type != CUDA_R_32F)) return false;
  for (const Layout* l : {&a, &b, &c}) {
    if (l->leading < l->rows) return false;
    if (get<int32_t>(l->attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1) !=
        get<int32_t>(c.attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1)) {
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t) { return "a status"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *d = wrap<cublasLtMatmulDescOpaque_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &of(d);
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  return put(of(d).attributes, attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *l = wrap<cublasLtMatrixLayoutOpaque_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading, {}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete &of(l);
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t size) {
  return put(of(l).attributes, attribute, value, size);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = is_possible(of(d), of(a), of(b), of(c)) ? 1 : 0;
  if (*found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].workspaceSize = 4096;  // that the backend must bring, and no tensor may lie in
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_size,
                              cudaStream_t stream) {
  const Operation op = of(operation);
  const Layout la = of(a_layout), lb = of(b_layout), lc = of(c_layout);
  const float scale = *static_cast<const float*>(alpha), old = *static_cast<const float*>(beta);
  if (!is_possible(op, la, lb, lc) || c != d) return CUBLAS_STATUS_INVALID_VALUE;
  const bool ta = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSA, 0) == CUBLAS_OP_T;
  const bool tb = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSB, 0) == CUBLAS_OP_T;
  const bool with_bias =
      get<uint32_t>(op.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, 0) == CUBLASLT_EPILOGUE_BIAS;
  const void* bias = get<const void*>(op.attributes, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  // cuBLASLt's own rule: a bias has the type of c.
  if (with_bias && get<cudaDataType_t>(op.attributes, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                       CUDA_R_32F) != lc.type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  trainyard::testing::submit_to_stream(stream, trainyard::testing::WorkKind::kProduct, [=] {
    std::memset(workspace, 0xFF, workspace_size);
    const int64_t k = ta ? la.rows : la.columns;
    const auto batch = get<int32_t>(lc.attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
    const auto stride = [](const Layout& l) {
      return get<int64_t>(l.attributes, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0);
    };
    for (int64_t p = 0; p < batch; ++p) {
      for (int64_t j = 0; j < lc.columns; ++j) {
        for (int64_t i = 0; i < lc.rows; ++i) {
          float sum = 0;
          for (int64_t q = 0; q < k; ++q) {
            const int64_t at_a = ta ? q + i * la.leading : i + q * la.leading;
            const int64_t at_b = tb ? j + q * lb.leading : q + j * lb.leading;
            sum += read(la, a, p * stride(la) + at_a) * read(lb, b, p * stride(lb) + at_b);
          }
          const int64_t at = p * stride(lc) + i + j * lc.leading;
          sum *= scale;
          if (old != 0) sum += old * read(lc, d, at);
          if (with_bias) sum += read(Layout{lc.type, 0, 0, 0, {}}, bias, i);
          write(lc, d, at, sum);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
