// The functions of cuBLASLt that the backend calls: they compute what the descriptors say, in
// column-major terms, by plain loops. See fake_cuda.h.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/math/philox.h"
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
cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  trainyard::testing::note_refusal(why);
  return status;
}
/// `known`: the valid attributes and their sizes in bytes.
cublasStatus_t put(Attributes& of, std::initializer_list<std::pair<int, size_t>> known,
                   int attribute, const void* value, size_t size) {
  const auto it = std::ranges::find(known, attribute, &std::pair<int, size_t>::first);
  if (it == known.end() || it->second != size || value == nullptr) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "Attribute " + std::to_string(attribute) +
                                                   " does not take a value of " +
                                                   std::to_string(size) + " bytes");
  }
  const auto* bytes = static_cast<const std::byte*>(value);
  of[attribute].assign(bytes, bytes + size);
  return CUBLAS_STATUS_SUCCESS;
}

struct Operation {
  Attributes attributes;
  bool tf32 = false;
};
struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  Attributes attributes;
};

using trainyard::kernels::cuda::Format;
using trainyard::testing::kAlgorithms;

Format format_of(const Layout& l) {
  switch (l.type) {
    case CUDA_R_32F:
      return Format::kF32;
    case CUDA_R_16BF:
      return Format::kBf16;
    case CUDA_R_16F:
      return Format::kF16;
    default:
      std::abort();
  }
}
float read(const Layout& l, const void* data, int64_t i) {
  return trainyard::testing::read_element(format_of(l), data, i);
}
void write(const Layout& l, void* data, int64_t i, float value) {
  trainyard::testing::write_element(format_of(l), data, i, value);
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
bool has_epilogues = true;
uint64_t product_seed = 0;
trainyard::testing::ProductCounts drawn_counts;
std::atomic<int64_t> slow_count = 0;

/// The operations applied to the sum of a product.
struct Epilogue {
  bool bias, gelu, keeps, gelu_grad, sums_of_b, relu, keeps_bits, relu_grad;
  explicit Epilogue(const Attributes& a) {
    const auto e = get<uint32_t>(a, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    const auto is_one_of = [&](std::initializer_list<cublasLtEpilogue_t> epilogues) {
      return std::ranges::find(epilogues, static_cast<cublasLtEpilogue_t>(e)) != epilogues.end();
    };
    keeps = is_one_of({CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
    gelu = keeps || is_one_of({CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS});
    keeps_bits = is_one_of({CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS});
    relu = keeps_bits || is_one_of({CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS});
    bias = is_one_of({CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS,
                      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
                      CUBLASLT_EPILOGUE_RELU_AUX_BIAS});
    gelu_grad = e == CUBLASLT_EPILOGUE_DGELU;
    relu_grad = e == CUBLASLT_EPILOGUE_DRELU;
    sums_of_b = e == CUBLASLT_EPILOGUE_BGRADB;
    if (e != CUBLASLT_EPILOGUE_DEFAULT && !bias && !is_more()) std::abort();
  }
  bool has_matrix() const { return keeps || gelu_grad; }
  bool has_bits() const { return keeps_bits || relu_grad; }
  /// Whether there is more than a bias.
  bool is_more() const { return gelu || gelu_grad || relu || relu_grad || sums_of_b; }
};
constexpr int64_t kBitsOfARow = 128;  // the row length in bits must be a multiple

float gelu(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}
float gelu_grad(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

Operation& of(cublasLtMatmulDesc_t d) { return inside<cublasLtMatmulDescOpaque_t, Operation>(d); }
Layout& of(cublasLtMatrixLayout_t l) { return inside<cublasLtMatrixLayoutOpaque_t, Layout>(l); }
Attributes& of(cublasLtMatmulPreference_t p) {
  return inside<cublasLtMatmulPreferenceOpaque_t, Attributes>(p);
}

int32_t batch_of(const Layout& l) {
  return get<int32_t>(l.attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
}
int64_t stride_of(const Layout& l) {
  return get<int64_t>(l.attributes, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0);
}
/// The bytes from the first element to the last one.
int64_t bytes_of(const Layout& l) {
  const int64_t elements = (batch_of(l) - 1) * stride_of(l) + (l.columns - 1) * l.leading + l.rows;
  return elements * trainyard::kernels::cuda::element_bytes(format_of(l));
}

/// set_product_seed() draws one of these faults of the library for some products.
enum class Oddity : uint8_t { kMissing, kFails, kNoWorkspace, kLosesNan, kEmptyResult };
/// A number for all products of the same types, transposition and epilogue.
uint64_t kind_of(const Operation& op, const Layout& a, const Layout& c) {
  uint64_t kind = 0;
  for (const uint64_t part :
       {uint64_t{
            get<uint32_t>(op.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT)},
        static_cast<uint64_t>(get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSA, 0)),
        static_cast<uint64_t>(get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSB, 0)),
        static_cast<uint64_t>(a.type), static_cast<uint64_t>(c.type), uint64_t{op.tf32}}) {
    kind = kind * 1009 + part;
  }
  return kind;
}
/// Whether the seed draws the oddity for this kind of product, and for one of its algorithms.
bool has(Oddity oddity, uint64_t kind, uint64_t algorithm = 0) {
  if (product_seed == 0) return false;
  const uint32_t drawn =
      trainyard::math::philox_u32(product_seed, static_cast<uint32_t>(oddity), kind, algorithm);
  return drawn % 3 == 0;
}
constexpr int kLastAlgorithm = kAlgorithms - 1;  // which always runs and keeps NaN
bool fails(uint64_t kind, uint64_t algorithm) {
  return algorithm != kLastAlgorithm && has(Oddity::kFails, kind, algorithm);
}
bool cuts_nan(uint64_t kind, uint64_t algorithm) {
  return !trainyard::testing::relu_heeds_nan() ||
         trainyard::testing::loses_nan(static_cast<int64_t>(algorithm)) ||
         (algorithm != kLastAlgorithm && has(Oddity::kLosesNan, kind, algorithm));
}

/// Whether cuBLASLt has only slow kernels for the product. In 16 bits, the fast ones load 16 bytes:
/// the stored rows of each matrix, and the distances between them, must be multiples of that.
bool is_slow(const Layout& a, const Layout& b, const Layout& c) {
  if (a.type == CUDA_R_32F) return false;
  return std::ranges::any_of(std::initializer_list<const Layout*>{&a, &b, &c}, [](const Layout* l) {
    const int64_t element = trainyard::kernels::cuda::element_bytes(format_of(*l));
    return l->rows * element % 16 != 0 || l->leading * element % 16 != 0;
  });
}

/// The reason why cuBLASLt would refuse the product; empty if the product is valid.
std::string why_impossible(const Operation& op, const Layout& a, const Layout& b, const Layout& c) {
  const bool ta = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSA, 0) == CUBLAS_OP_T;
  const bool tb = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSB, 0) == CUBLAS_OP_T;
  const int64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  if ((tb ? b.columns : b.rows) != k || (tb ? b.rows : b.columns) != c.columns || c.rows != m) {
    return "The sizes of the matrices do not fit";
  }
  if (op.tf32 && a.type != CUDA_R_32F) return "TF32 is of operands in F32";
  if ((op.tf32 || a.type == CUDA_R_16BF) && !trainyard::testing::has_bf16_and_tf32()) {
    return "The device has no products of this type";
  }
  if (a.type != b.type || (c.type != CUDA_R_32F && c.type != a.type)) {
    return "There is no product of these types";
  }
  const Epilogue epilogue(op.attributes);
  if (!has_epilogues && epilogue.is_more()) return "There is no such epilogue";
  if (epilogue.is_more() && has(Oddity::kMissing, kind_of(op, a, c))) {
    ++drawn_counts.missing_epilogues;
    return "There is no such epilogue for these types";
  }
  const auto aux_leading = get<int64_t>(op.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
  const int64_t multiple = epilogue.has_bits() ? kBitsOfARow : epilogue.has_matrix() ? 8 : 0;
  if (multiple > 0 && (aux_leading % multiple != 0 || aux_leading < c.rows)) {
    return "The leading dimension of the auxiliary matrix is " + std::to_string(aux_leading) +
           ", it must be a multiple of " + std::to_string(multiple) + " and at least " +
           std::to_string(c.rows);
  }
  for (const Layout* l : {&a, &b, &c}) {
    if (l->rows < 1 || l->columns < 1 || l->leading < l->rows) {
      return "A matrix of " + std::to_string(l->rows) + " rows and " + std::to_string(l->columns) +
             " columns has the leading dimension " + std::to_string(l->leading);
    }
    if (batch_of(*l) != batch_of(c)) return "The matrices come in different numbers";
  }
  if (batch_of(c) > 1 && stride_of(c) == 0) return "All results have one place";
  return "";
}

/// The content of an algorithm: a magic word, its number, its scheme, the alignments declared for
/// a, b, c and d, 16 bits each, and the bytes of its workspace.
constexpr uint64_t kAlgorithmWord = 0x79617264;
using Alignments = std::array<uint32_t, 4>;
constexpr uint32_t kAlignmentDefault = 256;
Alignments alignments_of(const cublasLtMatmulAlgo_t& algorithm) {
  Alignments all{};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<uint32_t>(algorithm.data[3] >> (16 * i) & 0xFFFF);
  }
  return all;
}
cublasLtMatmulAlgo_t make_algorithm(int index, const Alignments& alignments, uint64_t kind) {
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = kAlgorithmWord;
  algorithm.data[1] = static_cast<uint64_t>(index);
  algorithm.data[2] = CUBLASLT_REDUCTION_SCHEME_NONE;
  for (size_t i = 0; i < alignments.size(); ++i) {
    algorithm.data[3] |= uint64_t{alignments[i]} << (16 * i);
  }
  const auto number = static_cast<uint64_t>(index);
  algorithm.data[4] = has(Oddity::kNoWorkspace, kind, number) ? 0 : 4096 * (1 + number);
  return algorithm;
}
/// A pointer passed to a product.
struct Memory {
  const char* name;
  const void* data;
  int64_t bytes, alignment;
};
constexpr int64_t kVectorAlignment = 16;  // alignment of memory that an epilogue accesses
/// The workspace that the backend must provide; no tensor may overlap it.
size_t workspace_of(const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[4]; }
/// The index of the `q`-th of `k` terms in an algorithm's order: ascending, descending, or the even
/// indices first.
int64_t term(uint64_t algorithm, int64_t q, int64_t k) {
  if (algorithm == 0) return q;
  if (algorithm == 1) return k - 1 - q;
  const int64_t even = (k + 1) / 2;
  return q < even ? 2 * q : 2 * (q - even) + 1;
}

}  // namespace

namespace trainyard::testing {
void set_product_epilogues(bool available) { has_epilogues = available; }
void set_product_seed(uint64_t seed) {
  product_seed = seed;
  drawn_counts = {};
}
ProductCounts product_counts() { return drawn_counts; }
int64_t slow_products() { return slow_count; }
}  // namespace trainyard::testing

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
  const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((!tf32 && compute != CUBLAS_COMPUTE_32F) || scale != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *d = wrap<cublasLtMatmulDescOpaque_t>(new Operation{{}, tf32});
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
  return put(of(d).attributes,
             {{CUBLASLT_MATMUL_DESC_TRANSA, 4},
              {CUBLASLT_MATMUL_DESC_TRANSB, 4},
              {CUBLASLT_MATMUL_DESC_EPILOGUE, 4},
              {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8},
              {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4},
              {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8},
              {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8}},
             attribute, value, size);
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
  return put(
      of(l).attributes,
      {{CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4}, {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8}},
      attribute, value, size);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = wrap<cublasLtMatmulPreferenceOpaque_t>(new Attributes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete &of(p);
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  return put(of(p),
             {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8},
              {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4}},
             attribute, value, size);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t p, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  const std::string why = why_impossible(of(d), of(a), of(b), of(c));
  if (!why.empty()) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, why);
  Alignments alignments{};
  for (size_t i = 0; i < alignments.size(); ++i) {
    alignments[i] = get<uint32_t>(
        of(p), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + static_cast<int>(i), kAlignmentDefault);
  }
  const auto most = get<uint64_t>(of(p), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
  const uint64_t kind = kind_of(of(d), of(a), of(c));
  if (has(Oddity::kEmptyResult, kind) && *found < requested) {
    results[*found] = {};
    results[(*found)++].state = CUBLAS_STATUS_NOT_SUPPORTED;
    ++drawn_counts.empty_results;
  }
  for (int i = 0; i < kAlgorithms && *found < requested; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[*found];
    result = {};
    result.algo = make_algorithm(i, alignments, kind);
    result.workspaceSize = workspace_of(result.algo);
    if (result.workspaceSize <= most) ++*found;
  }
  if (*found == 0)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "No algorithm has so little workspace");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (algorithm->data[0] != kAlgorithmWord || algorithm->data[1] >= kAlgorithms ||
      trainyard::testing::is_algorithm_refused(static_cast<int64_t>(algorithm->data[1])) ||
      !why_impossible(of(d), of(a), of(b), of(c)).empty()) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  result->workspaceSize = workspace_of(*algorithm);
  trainyard::testing::count_restored_algorithm();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t size, size_t* written) {
  if (attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME || size != sizeof(uint32_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto scheme = static_cast<uint32_t>(algorithm->data[2]);
  std::memcpy(value, &scheme, sizeof scheme);
  *written = sizeof scheme;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130000; }
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* chosen, void* workspace,
                              size_t workspace_size, cudaStream_t stream) {
  const cublasLtMatmulAlgo_t algorithm = *chosen;
  if (algorithm.data[0] != kAlgorithmWord) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "This is no algorithm");
  }
  if (trainyard::testing::is_context_broken() ||
      trainyard::testing::is_algorithm_broken(static_cast<int64_t>(algorithm.data[1]))) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const Operation op = of(operation);
  const uint64_t kind = kind_of(op, of(a_layout), of(c_layout));
  if (fails(kind, algorithm.data[1])) {
    ++drawn_counts.failed_runs;
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "The algorithm does not run");
  }
  const Layout la = of(a_layout), lb = of(b_layout), lc = of(c_layout);
  const float scale = *static_cast<const float*>(alpha), old = *static_cast<const float*>(beta);
  if (const std::string why = why_impossible(op, la, lb, lc); !why.empty() || c != d) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, c != d ? "c and d are two matrices" : why);
  }
  const bool ta = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSA, 0) == CUBLAS_OP_T;
  const bool tb = get<int32_t>(op.attributes, CUBLASLT_MATMUL_DESC_TRANSB, 0) == CUBLAS_OP_T;
  const Epilogue epilogue(op.attributes);
  void* const bias = get<void*>(op.attributes, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  void* const aux = get<void*>(op.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr);
  const auto aux_leading = get<int64_t>(op.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
  const int64_t element = trainyard::kernels::cuda::element_bytes(format_of(lc));
  std::vector<Memory> memory = {{"A", a, bytes_of(la), alignments_of(algorithm)[0]},
                                {"B", b, bytes_of(lb), alignments_of(algorithm)[1]},
                                {"C", c, bytes_of(lc), alignments_of(algorithm)[2]},
                                {"D", d, bytes_of(lc), alignments_of(algorithm)[3]}};
  if (workspace_of(algorithm) > 0) {
    memory.push_back({"workspace", workspace, static_cast<int64_t>(workspace_of(algorithm)),
                      trainyard::testing::kWorkspaceAlignment});
  }
  if (epilogue.bias || epilogue.sums_of_b) {
    const int64_t count = epilogue.bias ? lc.rows : lc.columns;
    memory.push_back({"bias", bias, count * element, kVectorAlignment});
  }
  if (epilogue.has_matrix()) {
    memory.push_back({"auxiliary matrix", aux, ((lc.columns - 1) * aux_leading + lc.rows) * element,
                      kVectorAlignment});
  } else if (epilogue.has_bits()) {
    memory.push_back({"auxiliary matrix", aux, lc.columns * aux_leading / 8, kVectorAlignment});
  }
  for (const Memory& m : memory) {
    const std::string why = trainyard::testing::wrong_memory(m.name, m.data, m.bytes, m.alignment);
    if (!why.empty()) return refuse(CUBLAS_STATUS_INVALID_VALUE, why);
  }
  if (workspace_size < workspace_of(algorithm)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "The algorithm needs " + std::to_string(workspace_of(algorithm)) +
                      " bytes of workspace, got " + std::to_string(workspace_size));
  }
  // cuBLASLt's rule: a bias has the type of c.
  if ((epilogue.bias || epilogue.sums_of_b) &&
      get<cudaDataType_t>(op.attributes, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F) !=
          lc.type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  slow_count += is_slow(la, lb, lc) ? 1 : 0;
  drawn_counts.without_workspace += workspace_of(algorithm) == 0 ? 1 : 0;
  const bool cuts = epilogue.relu && cuts_nan(kind, algorithm.data[1]);
  drawn_counts.lost_nan += cuts && product_seed != 0 ? 1 : 0;
  trainyard::testing::submit_to_stream(stream, trainyard::testing::WorkKind::kProduct, [=] {
    trainyard::testing::spend_algorithm_cost(algorithm.data[1]);
    if (workspace_of(algorithm) > 0) {
      std::memset(workspace, 0xFF, workspace_of(algorithm));  // NaN in every type
    }
    const int64_t k = ta ? la.rows : la.columns;
    const int32_t batch = batch_of(lc);
    const Layout like_c{lc.type, 0, 0, 0, {}};
    for (int64_t p = 0; p < batch; ++p) {
      for (int64_t j = 0; j < lc.columns; ++j) {
        if (epilogue.sums_of_b) {
          float sum = 0;
          for (int64_t q = 0; q < k; ++q) {
            sum += read(lb, b, tb ? j + q * lb.leading : q + j * lb.leading);
          }
          write(like_c, bias, j, sum);
        }
        for (int64_t i = 0; i < lc.rows; ++i) {
          float sum = 0;
          for (int64_t t = 0; t < k; ++t) {
            const int64_t q = term(algorithm.data[1], t, k);
            const int64_t at_a = ta ? q + i * la.leading : i + q * la.leading;
            const int64_t at_b = tb ? j + q * lb.leading : q + j * lb.leading;
            const float x = read(la, a, p * stride_of(la) + at_a);
            const float y = read(lb, b, p * stride_of(lb) + at_b);
            using trainyard::testing::to_tf32;
            sum += op.tf32 ? to_tf32(x) * to_tf32(y) : x * y;
          }
          const int64_t at = p * stride_of(lc) + i + j * lc.leading;
          sum *= scale;
          if (old != 0) sum += old * read(lc, d, at);
          if (epilogue.bias) sum += read(like_c, bias, i);
          if (epilogue.keeps) write(like_c, aux, i + j * aux_leading, sum);
          if (epilogue.gelu) sum = gelu(sum);
          if (epilogue.gelu_grad) sum *= gelu_grad(read(like_c, aux, i + j * aux_leading));
          auto* const bits = static_cast<uint8_t*>(aux) + (i + j * aux_leading) / 8;
          const auto bit = static_cast<uint8_t>(1 << i % 8);
          if (epilogue.relu) {
            const bool passes = cuts ? sum > 0 : !(sum <= 0);
            if (epilogue.keeps_bits) {
              *bits = static_cast<uint8_t>(passes ? *bits | bit : *bits & ~bit);
            }
            if (!passes) sum = 0;
          }
          if (epilogue.relu_grad && (*bits & bit) == 0) sum = 0;
          write(lc, d, at, sum);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
