#include "src/runtime/cuda/cublaslt_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include "kernels/cuda/convert.h"
#include "kernels/movement.h"
#include "src/base/check.h"
#include "src/ops/gemm.h"
#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/offers.h"
#include "src/runtime/cuda/timing.h"

namespace trainyard::cuda {
namespace {

using kernels::cuda::Format;

constexpr int kCandidatesMax = 8;
// Partial sums of split products are added from the workspace, by a kernel with a fixed order.
constexpr uint32_t kReductionSchemes =
    CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute " + std::to_string(attribute));
}

template <typename T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
        "cublasLtMatrixLayoutSetAttribute " + std::to_string(attribute));
}

template <typename T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute " + std::to_string(attribute));
}

cudaDataType_t data_type(Format format) {
  return format == Format::kF32 ? CUDA_R_32F : format == Format::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// A row-major [rows, columns] matrix is a column-major matrix with `columns` rows.
MatrixLayout row_major(int64_t rows, int64_t columns, int64_t row, Format format, int64_t batch,
                       int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  const cublasStatus_t status =
      cublasLtMatrixLayoutCreate(&layout, data_type(format), static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), row > 0 ? row : columns);
  MatrixLayout owner(layout);
  check(status, "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return owner;
}

cublasLtEpilogue_t library_epilogue(const MatmulDims& d) {
  switch (d.epilogue) {
    case Epilogue::kNone:
      return d.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kGelu:
      return d.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Epilogue::kGeluKept:
      return d.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluGrad:
      TRAINYARD_CHECK(!d.bias, "a gradient has no bias");
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kRelu:
      return d.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kReluKept:
      return d.bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
    case Epilogue::kReluGrad:
      TRAINYARD_CHECK(!d.bias, "a gradient has no bias");
      return CUBLASLT_EPILOGUE_DRELU;
    case Epilogue::kSumsOfA:  // our a is cuBLASLt's second operand
      TRAINYARD_CHECK(!d.bias && d.c == Format::kF32, "sums of a have the type of c, F32");
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

std::string words_of(const MatmulDims& d) {
  return std::to_string(d.m) + "x" + std::to_string(d.n) + "x" + std::to_string(d.k) +
         (d.batch > 1 ? ", " + std::to_string(d.batch) + " of them" : "");
}

bool has_other_matrix(const MatmulDims& d) {
  return d.epilogue == Epilogue::kGeluKept || d.epilogue == Epilogue::kGeluGrad;
}
bool has_mask(const MatmulDims& d) {
  return d.epilogue == Epilogue::kReluKept || d.epilogue == Epilogue::kReluGrad;
}
bool has_relu(const MatmulDims& d) { return d.epilogue == Epilogue::kRelu || has_mask(d); }

/// Returns a key with everything on which the choice of an algorithm depends. The structured
/// binding lists all members, so a new member that is missing here causes a compile error.
std::string key_of(const Device& device, const MatmulDims& d) {
  const auto& [m, n, k, transpose_a, transpose_b, bias, batch, stride_a, stride_b, stride_c,
               operands, c, accumulate, tf32, row_a, row_b, row_c, alignment, epilogue] = d;
  std::string key = "matmul";
  const auto add = [&](const char* name, std::initializer_list<int64_t> values) {
    add_numbers(key, name, values);
  };
  add("sizes", {m, n, k});
  add("batch", {batch, stride_a, stride_b, stride_c});
  add("rows", {row_a, row_b, row_c});
  add("transposed", {transpose_a, transpose_b});
  key += std::string(" ") + name_of(operands) + ">" + name_of(c);
  add("epilogue", {static_cast<int64_t>(epilogue)});
  if (bias) key += " bias";
  if (accumulate) key += " accumulate";
  if (tf32) key += " tf32";
  add("alignment", {alignment});
  add("workspace", {matmul_workspace_max(device.memory_bytes())});
  return key;
}

/// Returns the product as the device computes it: TF32 is F32 if the device does not have it.
MatmulDims on_device(const Device& device, MatmulDims d) {
  d.tf32 = d.tf32 && device.has_tf32();
  return d;
}

const char* words_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "none";
    case Epilogue::kGelu:
      return "gelu";
    case Epilogue::kGeluKept:
      return "gelu, keeping its input";
    case Epilogue::kGeluGrad:
      return "gradient of gelu";
    case Epilogue::kSumsOfA:
      return "gradient of a bias";
    case Epilogue::kRelu:
      return "relu";
    case Epilogue::kReluKept:
      return "relu, keeping its mask";
    case Epilogue::kReluGrad:
      return "gradient of relu";
  }
  return "";
}

void note(const Device& device, const MatmulDims& d, Offer offer) {
  note_offer("cuBLASLt", std::string("product, ") + words_of(d.epilogue) + (d.bias ? ", bias" : ""),
             name_of(d.operands) + " to " + name_of(d.c), key_of(device, d), offer);
}

/// Number of elements from the first to the last element of an operand.
int64_t extent(int64_t batch, int64_t stride, int64_t rows, int64_t columns, int64_t row) {
  return (batch - 1) * stride + (rows - 1) * (row > 0 ? row : columns) + columns;
}
int64_t extent_of_a(const MatmulDims& d) {
  return extent(d.batch, d.stride_a, d.transpose_a ? d.k : d.m, d.transpose_a ? d.m : d.k, d.row_a);
}
int64_t extent_of_c(const MatmulDims& d) { return extent(d.batch, d.stride_c, d.m, d.n, d.row_c); }
int64_t mask_bytes(const MatmulDims& d) { return d.m * relu_mask_bytes(d.n); }
int64_t extent_of_b(const MatmulDims& d) {
  return extent(d.batch, d.stride_b, d.transpose_b ? d.n : d.k, d.transpose_b ? d.k : d.n, d.row_b);
}
/// Bytes that suffice for `other`: a matrix like c, a column of sums, or a smaller mask; 0: none.
int64_t other_bytes(const MatmulDims& d) {
  if (!has_other_matrix(d) && !has_mask(d) && d.epilogue != Epilogue::kSumsOfA) return 0;
  return std::max(extent_of_c(d) * element_bytes(d.c), mask_bytes(d));
}

// A choice is the bytes of the library's structure, which may be stored for use with the same
// version of the library. Source: cuBLAS documentation, cublasLtMatmulAlgo_t.
constexpr std::string_view kChoicePrefix = "cublaslt ";
constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string choice_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::array<unsigned char, sizeof algorithm> bytes{};
  std::memcpy(bytes.data(), &algorithm, sizeof algorithm);
  std::string text(kChoicePrefix);
  for (const unsigned char byte : bytes) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

std::optional<cublasLtMatmulAlgo_t> parse_choice(std::string_view text) {
  cublasLtMatmulAlgo_t algorithm;
  std::array<unsigned char, sizeof algorithm> bytes{};
  if (!text.starts_with(kChoicePrefix)) return std::nullopt;
  text.remove_prefix(kChoicePrefix.size());
  if (text.size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kHexDigits.find(text[i]);
    if (digit == kHexDigits.npos) return std::nullopt;
    bytes[i / 2] = static_cast<unsigned char>(bytes[i / 2] << 4 | digit);
  }
  std::memcpy(&algorithm, bytes.data(), sizeof algorithm);
  return algorithm;
}

}  // namespace

MatmulDescription::MatmulDescription(const MatmulDims& d) {
  TRAINYARD_CHECK(d.m > 0 && d.n > 0 && d.k > 0 && d.batch > 0 && d.batch <= INT32_MAX,
                  "matmul " + words_of(d) + ": every dimension must be above 0");
  const cublasComputeType_t compute =
      d.tf32 && d.operands == Format::kF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t created = nullptr;
  const cublasStatus_t status = cublasLtMatmulDescCreate(&created, compute, CUDA_R_32F);
  operation.reset(created);
  check(status, "cublasLtMatmulDescCreate");
  set(created, CUBLASLT_MATMUL_DESC_TRANSA, d.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(created, CUBLASLT_MATMUL_DESC_TRANSB, d.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(created, CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(d));
  if (has_other_matrix(d)) {
    set(created, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, d.row_c > 0 ? d.row_c : d.n);
  } else if (has_mask(d)) {
    set(created, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        8 * relu_mask_bytes(d.n));  // row stride in bits
  }
  if (d.bias || d.epilogue == Epilogue::kSumsOfA) {
    set(created, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(d.c));
  }
  b = d.transpose_b ? row_major(d.n, d.k, d.row_b, d.operands, d.batch, d.stride_b)
                    : row_major(d.k, d.n, d.row_b, d.operands, d.batch, d.stride_b);
  a = d.transpose_a ? row_major(d.k, d.m, d.row_a, d.operands, d.batch, d.stride_a)
                    : row_major(d.m, d.k, d.row_a, d.operands, d.batch, d.stride_a);
  c = row_major(d.m, d.n, d.row_c, d.c, d.batch, d.stride_c);
}

std::vector<Matmul::Algorithm> Matmul::propose(const Device& device, const MatmulDims& dims,
                                               const MatmulDescription& description) {
  TRAINYARD_CHECK(dims.c == Format::kF32 || dims.c == dims.operands,
                  "cuBLASLt does not support a product of these operands");
  cublasLtMatmulPreference_t created = nullptr;
  const cublasStatus_t status = cublasLtMatmulPreferenceCreate(&created);
  const MatmulPreference preference(created);
  check(status, "cublasLtMatmulPreferenceCreate");
  prefer(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<uint64_t>(matmul_workspace_max(device.memory_bytes())));
  prefer(created, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductionSchemes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(created, attribute, dims.alignment);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidatesMax);
  int found = 0;
  const cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(
      device.blas(), description.operation.get(), description.b.get(), description.a.get(),
      description.c.get(), description.c.get(), created, kCandidatesMax, results.data(), &found);
  // The library reports an unsupported epilogue with either status.
  if (asked == CUBLAS_STATUS_NOT_SUPPORTED || asked == CUBLAS_STATUS_INVALID_VALUE) found = 0;
  if (asked != CUBLAS_STATUS_NOT_SUPPORTED && dims.epilogue == Epilogue::kNone) {
    check(asked, "choosing an algorithm for a product of " + words_of(dims));
  }
  results.resize(static_cast<size_t>(found));
  std::vector<Algorithm> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& r : results) {
    if (r.state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms.push_back({r.algo, static_cast<int64_t>(r.workspaceSize)});
  }
  return algorithms;
}

std::optional<Matmul::Algorithm> Matmul::first(const Device& device, const MatmulDims& dims,
                                               const MatmulDescription& description) {
  for (const Algorithm& algorithm : propose(device, dims, description)) {
    if (passes_trial(device, dims, description, algorithm)) return algorithm;
  }
  return std::nullopt;
}

bool Matmul::is_supported(const Device& device, const MatmulDims& d) {
  const MatmulDims dims = on_device(device, d);
  if (has_other_matrix(dims) && (dims.row_c > 0 ? dims.row_c : dims.n) % 8 != 0) return false;
  return first(device, dims, MatmulDescription(dims)).has_value();
}

Matmul::Matmul(const Device& device, const MatmulDims& dims)
    : device_(device), dims_(on_device(device, dims)), description_(dims_) {
  if (dims.bias && dims.c != Format::kF32) bias_bytes_ = aligned(2 * dims.n);
  AlgorithmProblem problem;
  problem.take = [this](const std::string& choice) {
    const std::optional<Algorithm> restored = restore(choice);
    if (!restored.has_value()) return false;
    if (!passes_trial(device_, dims_, description_, *restored)) return false;
    algorithm_ = *restored;
    return true;
  };
  problem.take_first = [this]() -> std::optional<std::string> {
    const std::optional<Algorithm> proposed = first(device_, dims_, description_);
    if (!proposed.has_value()) return std::nullopt;
    algorithm_ = *proposed;
    return choice_of(algorithm_.algorithm);
  };
  problem.time = [this] { return time(); };
  if (device.choose(key_of(device, dims_), problem)) return;
  throw CudaError("cuBLASLt has no algorithm that runs for a product of " + words_of(dims),
                  CUBLAS_STATUS_NOT_SUPPORTED, CudaFault::kProgram);
}

std::optional<Matmul::Algorithm> Matmul::restore(const std::string& choice) const {
  const std::optional<cublasLtMatmulAlgo_t> algorithm = parse_choice(choice);
  if (!algorithm.has_value()) return std::nullopt;
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&*algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                           &scheme, sizeof scheme,
                                           &written) != CUBLAS_STATUS_SUCCESS ||
      (scheme & ~kReductionSchemes) != 0) {
    return std::nullopt;
  }
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(device_.blas(), description_.operation.get(), description_.b.get(),
                              description_.a.get(), description_.c.get(), description_.c.get(),
                              &*algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > static_cast<size_t>(matmul_workspace_max(device_.memory_bytes()))) {
    return std::nullopt;
  }
  return Algorithm{*algorithm, static_cast<int64_t>(result.workspaceSize)};
}

std::optional<TimedChoice> Matmul::time() const {
  std::vector<Algorithm> algorithms;
  std::vector<Candidate> candidates;
  for (const Algorithm& proposed : propose(device_, dims_, description_)) {
    const std::string choice = choice_of(proposed.algorithm);
    const std::optional<Algorithm> restored = restore(choice);
    if (!restored.has_value()) continue;  // it could not be restored later
    if (has_relu(dims_) && !passes_trial(device_, dims_, description_, *restored)) continue;
    algorithms.push_back(*restored);
    candidates.push_back({choice, restored->workspace_bytes});
  }
  const int64_t width = element_bytes(dims_.operands), c_width = element_bytes(dims_.c);
  const int64_t other = other_bytes(dims_);
  const std::array<int64_t, 5> bytes{extent_of_a(dims_) * width, extent_of_b(dims_) * width,
                                     dims_.n * c_width, extent_of_c(dims_) * c_width, other};
  return time_candidates(device_, candidates, bytes,
                         [&](size_t i, std::span<void* const> at, void* workspace) {
                           submit(device_, dims_, description_, algorithms[i], at[0], at[1], at[2],
                                  at[3], workspace, other > 0 ? at[4] : nullptr);
                         });
}

void Matmul::run(const void* a, const void* b, kernels::cuda::In bias, void* c, void* workspace,
                 void* other) const {
  const void* added = bias.data;
  if (dims_.bias && bias.format != dims_.c) {
    TRAINYARD_CHECK(bias_bytes_ > 0, "a bias of 16 bits with a result in F32");
    kernels::cuda::convert(dims_.n, bias, {workspace, dims_.c}, device_.stream());
    added = workspace;
  }
  submit(device_, dims_, description_, algorithm_, a, b, added, c,
         static_cast<std::byte*>(workspace) + bias_bytes_, other);
}

void Matmul::submit(const Device& device, const MatmulDims& dims,
                    const MatmulDescription& description, const Algorithm& algorithm, const void* a,
                    const void* b, const void* added, void* c, void* workspace, void* other) {
  cublasLtMatmulDesc_t const operation = description.operation.get();
  if (dims.bias) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, added);
  if (dims.epilogue == Epilogue::kSumsOfA) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, other);
  } else if (other != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, other);
  }
  const float one = 1,
              old = dims.accumulate ? 1 : 0;  // with 0, c is overwritten whatever it contained
  check(
      cublasLtMatmul(device.blas(), operation, &one, b, description.b.get(), a, description.a.get(),
                     &old, c, description.c.get(), c, description.c.get(), &algorithm.algorithm,
                     workspace, static_cast<size_t>(algorithm.workspace_bytes), device.stream()),
      "cublasLtMatmul");
}

bool Matmul::passes_trial(const Device& device, const MatmulDims& dims,
                          const MatmulDescription& description, const Algorithm& algorithm) {
  return device.test_once(key_of(device, dims) + " " + choice_of(algorithm.algorithm), [&] {
    return cuda::passes_trial(device, /*results_matter=*/has_relu(dims),
                              [&] { return try_out(device, dims, description, algorithm); });
  });
}

bool Matmul::try_out(const Device& device, const MatmulDims& dims,
                     const MatmulDescription& description, const Algorithm& algorithm) {
  const int64_t width = element_bytes(dims.operands), c_width = element_bytes(dims.c);
  // All operands share one memory whose bytes are NaN in every format.
  const int64_t bytes = std::max({extent_of_a(dims) * width, extent_of_b(dims) * width,
                                  extent_of_c(dims) * c_width, dims.n * c_width});
  const int64_t bits_bytes = has_mask(dims) ? mask_bytes(dims) : 0, other = other_bytes(dims);
  const DeviceMemory tensors = device.allocate(bytes), others = device.allocate(other),
                     workspace = device.allocate(algorithm.workspace_bytes);
  const WaitsAtEnd waits(device);
  const auto set_bytes = [&](const DeviceMemory& memory, int value, int64_t count) {
    check(cudaMemsetAsync(memory.get(), value, static_cast<size_t>(count), device.stream()),
          "preparing the trial of a product");
  };
  const auto read = [&](const DeviceMemory& memory, int64_t count) {
    std::vector<std::byte> host(static_cast<size_t>(count), std::byte{0xFF});
    check(cudaMemcpyAsync(host.data(), memory.get(), host.size(), cudaMemcpyDeviceToHost,
                          device.stream()),
          "reading the result of a product's NaN test");
    device.synchronize();
    return host;
  };
  set_bytes(tensors, 0xFF, bytes);
  if (other > 0) set_bytes(others, dims.epilogue == Epilogue::kReluGrad ? 0xFF : 0, other);
  submit(device, dims, description, algorithm, tensors.get(), tensors.get(), tensors.get(),
         tensors.get(), workspace.get(), other > 0 ? others.get() : nullptr);
  if (!has_relu(dims)) return true;
  constexpr int64_t kSample = 4096;
  const int64_t sample = std::min(extent_of_c(dims), kSample);
  const std::vector<std::byte> made = read(tensors, sample * c_width);
  for (int64_t i = 0; i < sample; ++i) {
    if (!std::isnan(kernels::cuda::In{made.data(), dims.c}[i])) {
      note(device, dims, Offer::kLosesNan);
      return false;
    }
  }
  if (dims.epilogue != Epilogue::kReluKept) return true;
  const int64_t row = relu_mask_bytes(dims.n);
  const std::vector<std::byte> bits = read(others, std::min(bits_bytes, kSample * row));
  for (int64_t i = 0; i < std::ssize(bits) / row; ++i) {
    for (int64_t j = 0; j < dims.n; ++j) {
      if ((bits[static_cast<size_t>(i * row + j / 8)] >> (j % 8) & std::byte{1}) == std::byte{0}) {
        note(device, dims, Offer::kLosesNan);
        return false;
      }
    }
  }
  return true;
}

Format narrowest(std::initializer_list<Format> formats) {
  Format narrow = Format::kF32;
  for (const Format f : formats) {
    if (f == Format::kF32) continue;
    TRAINYARD_CHECK(narrow == Format::kF32 || narrow == f, "a product of two formats of 16 bits");
    narrow = f;
  }
  return narrow;
}

kernels::cuda::In Narrowed::run(const Device& device, kernels::cuda::In x, void* to) const {
  const kernels::cuda::Out y{to, format_};
  if (row() == columns_) {
    kernels::cuda::convert(rows_ * columns_, x, y, device.stream());
  } else {
    kernels::Box<2> box;
    box.append(rows_, {columns_, row()});
    box.append(columns_, {1, 1});
    kernels::cuda::copy(box, x, y, device.stream());
  }
  return y;
}

namespace {

/// Returns the narrowed copy of an operand that is not stored in the product's format. For a single
/// product with dense rows the copy gets padded rows that the library prefers, and `row` is set; an
/// operand with a row stride or a batch is copied unchanged.
std::optional<Narrowed> narrowed(Format stored, Format operands, int64_t batch, int64_t extent,
                                 int64_t rows, int64_t columns, int64_t& row) {
  if (stored == operands) return std::nullopt;
  if (batch > 1 || row > 0) return Narrowed(1, extent, operands);
  const Narrowed copy(rows, columns, operands);
  row = copy.row();
  return copy;
}
std::optional<Narrowed> narrowed_a(MatmulDims& d, Format a) {
  return narrowed(a, d.operands, d.batch, extent_of_a(d), d.transpose_a ? d.k : d.m,
                  d.transpose_a ? d.m : d.k, d.row_a);
}
std::optional<Narrowed> narrowed_b(MatmulDims& d, Format b) {
  return narrowed(b, d.operands, d.batch, extent_of_b(d), d.transpose_b ? d.n : d.k,
                  d.transpose_b ? d.k : d.n, d.row_b);
}

/// The dimensions after narrowing, as they are passed to cuBLASLt.
MatmulDims stored(MatmulDims d, Format a, Format b, Format c) {
  d.operands = narrowest({a, b, c});
  d.c = c;
  narrowed_a(d, a);
  narrowed_b(d, b);
  return d;
}

}  // namespace

Product::Product(const Device& device, MatmulDims d, Format a, Format b, Format c)
    : device_(device), product_(device, stored(d, a, b, c)) {
  d.operands = narrowest({a, b, c});
  a_ = narrowed_a(d, a);
  b_ = narrowed_b(d, b);
}

bool Product::is_supported(const Device& device, const MatmulDims& d, Format a, Format b,
                           Format c) {
  const MatmulDims dims = stored(d, a, b, c);
  const bool is_offered = Matmul::is_supported(device, dims);
  note(device, dims, is_offered ? Offer::kOffered : Offer::kNone);
  return is_offered;
}

int64_t Product::workspace_bytes() const {
  return (a_ ? a_->bytes() : 0) + (b_ ? b_->bytes() : 0) + product_.workspace_bytes();
}

void Product::run(kernels::cuda::In a, kernels::cuda::In b, kernels::cuda::In bias,
                  kernels::cuda::Out c, void* workspace, void* other) const {
  auto* next = static_cast<std::byte*>(workspace);
  const auto operand = [&](kernels::cuda::In x, const std::optional<Narrowed>& copy) {
    if (!copy.has_value()) return x.data;
    void* const to = next;
    next += copy->bytes();
    return copy->run(device_, x, to).data;
  };
  const void* const left = operand(a, a_);
  const void* const right = operand(b, b_);
  product_.run(left, right, bias, c.data, next, other);
}

}  // namespace trainyard::cuda
