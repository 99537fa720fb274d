#include "kernels/gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// A slice should take at least about 3 us, begin at a vector boundary, and have enough rows of N
// that equal rows give equal bits (MatmulDims::rows_alike).
constexpr int64_t kFlopsPerThread = 500'000;
constexpr int64_t kColumnStep = 16, kRowStep = 64;

/// How a product is divided over threads.
struct Cut {
  bool second = false;  // along the second of two dimensions
  int64_t size = 0;     // of the dimension
  int parts = 1;
};

/// Divides a product along its first dimension, of slices with at least `step` elements; or along
/// its second one if the first is too small to keep all threads busy, as the rank of a low-rank
/// addition is.
Cut cut_of(const GemmDims& d, int64_t first, int64_t second, int64_t second_step, int threads) {
  const int64_t most = std::min<int64_t>(2 * d.N * d.K * d.F / kFlopsPerThread, threads);
  const auto parts = [&](int64_t size, int64_t step) {
    return static_cast<int>(std::clamp<int64_t>(size / step, 1, std::max<int64_t>(most, 1)));
  };
  const int of_first = parts(first, kColumnStep), of_second = parts(second, second_step);
  return of_second > of_first ? Cut{true, second, of_second} : Cut{false, first, of_first};
}

// One product, divided as `cut` says, with one matmul per slice.
struct SlicedMatmul {
  bool second = false;
  std::vector<Range> ranges;
  std::vector<Matmul> products;
  std::vector<int64_t> offsets;  // offset of each slice's workspace
  WorkspaceLayout workspace;

  SlicedMatmul() = default;
  template <typename F>
  SlicedMatmul(const Cut& cut, const F& dims_of_slice) : second(cut.second) {
    for (int i = 0; i < cut.parts; ++i) {
      ranges.push_back(part_of(cut.size, i, cut.parts, kColumnStep));
      products.emplace_back(dims_of_slice(ranges.back().size()));
      offsets.push_back(workspace.add(products.back().workspace_bytes()));
    }
  }
  void run(int i, const void* a, const void* b, const float* bias, void* c, void* memory) {
    const auto index = static_cast<size_t>(i);
    products[index].run(a, b, bias, c, at_offset(memory, offsets[index]));
  }
};

// Rows of w are widened a part at a time, so that the widened part of a large w stays small.
constexpr int64_t kWidenedBytesMax = int64_t{8} << 20;

// Widens `rows` rows of `columns` numbers, which are `stride` elements apart in w and in `to`.
void widen_weight(Stored stored, int64_t rows, int64_t columns, int64_t stride, const void* w,
                  float* to) {
  if (columns == stride) return widen_from(stored, rows * columns, w, to);
  for (int64_t r = 0; r < rows; ++r) {
    widen_from(stored, columns, element_of(stored, w, r * stride), to + r * stride);
  }
}

/// Returns the address of element `at` of a result, y or dx.
void* in_result(const GemmForm& form, void* y, int64_t at) {
  return element_of(form.bf16_result ? Stored::kBf16 : Stored::kF32, y, at);
}
/// Returns how x and dy are stored.
Stored factor_of(const GemmForm& form) { return form.bf16 ? Stored::kBf16 : Stored::kF32; }
/// Whether w is widened before it is multiplied.
bool widens(const GemmForm& form) { return form.weight != Stored::kF32 && !form.bf16; }

}  // namespace

// y = x w^T + b, divided along K: each thread reads its own rows of w, which stay in its cache from
// the update to the next step. A product with few outputs is divided along N.
struct GemmForward::Impl {
  GemmDims d;
  GemmForm form;
  SlicedMatmul product;  // one for each part of a thread's rows of w
  int64_t parts_each = 1;
  std::vector<int64_t> widened;  // by thread: the offset of its widened rows
  WorkspaceLayout workspace;
  Team& team;

  // A thread's rows of w are multiplied in several parts only if the widened rows would be large.
  static int64_t parts_of_slice(const GemmDims& d, const GemmForm& form, int slices) {
    if (!widens(form)) return 1;
    const int64_t bytes = (d.K + slices - 1) / slices * d.F * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>((bytes + kWidenedBytesMax - 1) / kWidenedBytesMax, 1,
                               std::max<int64_t>(1, d.K / slices / kColumnStep));
  }

  Impl(const GemmDims& dims, bool bias, Team& t, GemmForm how) : d(dims), form(how), team(t) {
    if (form.few_rows) {
      Contract("gemm_forward").holds(d.N <= kFewRowsMax && !form.bf16, "x", "has too many rows");
      return;
    }
    Cut cut = cut_of(d, d.K, widens(form) ? 0 : d.N, kRowStep, team.size());
    const int slices = cut.parts;
    parts_each = parts_of_slice(d, form, slices);
    cut.parts *= static_cast<int>(parts_each);
    product = SlicedMatmul(cut, [&](int64_t size) {
      return MatmulDims{.M = cut.second ? size : d.N,
                        .N = cut.second ? d.K : size,
                        .K = d.F,
                        .a = {d.F, 1},
                        .b = {1, d.F},
                        .c = {d.K, 1},
                        .bias = bias,
                        .accumulate = d.adds,
                        .rows_alike = !d.adds,
                        .bf16 = form.bf16,
                        .c_bf16 = form.bf16_result};
    });
    workspace.add(product.workspace.size_bytes());
    if (!widens(form)) return;
    int64_t rows = 0;
    for (const Range& range : product.ranges) rows = std::max(rows, range.size());
    for (int i = 0; i < slices; ++i) {
      widened.push_back(workspace.add(rows * d.F * static_cast<int64_t>(sizeof(float))));
    }
  }

  /// Computes some rows of y.
  void run_rows(int i, const void* x, const void* w, const float* b, void* y, void* memory) {
    const int64_t n = product.ranges[static_cast<size_t>(i)].begin;
    product.run(i, element_of(factor_of(form), x, n * d.F), w, b, in_result(form, y, n * d.K),
                memory);
  }
  void run_part(int i, int thread, const void* x, const void* w, const float* b, void* y,
                void* memory) {
    if (product.second) return run_rows(i, x, w, b, y, memory);
    const Range range = product.ranges[static_cast<size_t>(i)];
    const int64_t k = range.begin;
    const void* rows = element_of(form.weight, w, k * d.F);
    if (widens(form)) {
      auto* wide = static_cast<float*>(at_offset(memory, widened[static_cast<size_t>(thread)]));
      widen_weight(form.weight, range.size(), d.F, d.F, rows, wide);
      rows = wide;
    }
    product.run(i, x, rows, b == nullptr ? nullptr : b + k, in_result(form, y, k), memory);
  }
};

GemmForward::GemmForward(const GemmDims& d, bool bias, Team& team, GemmForm form)
    : impl_(std::make_unique<Impl>(d, bias, team, form)) {}
GemmForward::~GemmForward() = default;
int64_t GemmForward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

void GemmForward::run(const void* x, const void* w, const float* b, void* y, void* workspace) {
  Impl& m = *impl_;
  check(m.d, x, w, y);
  if (m.form.few_rows) {
    return multiply_few_rows(m.d, m.form.weight, static_cast<const float*>(x), w, b,
                             static_cast<float*>(y), m.team);
  }
  const auto parts = static_cast<int>(std::ssize(m.product.ranges));
  const auto each = static_cast<int>(m.parts_each);
  m.team.run(parts / each, [&](int thread) {
    for (int i = thread * each; i < (thread + 1) * each; ++i) {
      m.run_part(i, thread, x, w, b, y, workspace);
    }
  });
}

// dx = dy w, divided along F; dw = dy^T x and db, divided along K like w in forward. If there are
// few columns of dx, it is divided along N; dw with few rows is divided along F.
struct GemmBackward::Impl {
  GemmDims d;
  GemmForm form;
  std::unique_ptr<SlicedMatmul> data, weights;
  int64_t weights_offset = 0, widened_offset = 0;
  int sums = 1;   // slices of db
  int parts = 1;  // threads
  WorkspaceLayout workspace;
  Team& team;
  Impl(const GemmDims& dims, bool wants_dx, bool wants_dw, Team& t, GemmForm how)
      : d(dims), form(how), team(t) {
    const Cut of_sums = cut_of(d, d.K, 0, kColumnStep, t.size());
    sums = parts = of_sums.parts;
    if (wants_dx) prepare_data(cut_of(d, d.F, widens(form) ? 0 : d.N, kRowStep, t.size()));
    if (wants_dw) prepare_weights(cut_of(d, d.K, d.F, kColumnStep, t.size()));
  }
  void prepare_data(const Cut& cut) {
    data = std::make_unique<SlicedMatmul>(cut, [&](int64_t size) {
      return MatmulDims{.M = cut.second ? size : d.N,
                        .N = cut.second ? d.F : size,
                        .K = d.K,
                        .a = {d.K, 1},
                        .b = {d.F, 1},
                        .c = {d.F, 1},
                        .accumulate = d.adds,
                        .bf16 = form.bf16,
                        .c_bf16 = form.bf16_result};
    });
    parts = std::max(parts, cut.parts);
    workspace.add(data->workspace.size_bytes());
    if (!widens(form)) return;
    widened_offset = workspace.add(d.K * d.F * static_cast<int64_t>(sizeof(float)));
  }
  void prepare_weights(const Cut& cut) {
    weights = std::make_unique<SlicedMatmul>(cut, [&](int64_t size) {
      return MatmulDims{.M = cut.second ? d.K : size,
                        .N = cut.second ? size : d.F,
                        .K = d.N,
                        .a = {1, d.K},
                        .b = {d.F, 1},
                        .c = {d.F, 1},
                        .bf16 = form.bf16};
    });
    parts = std::max(parts, cut.parts);
    weights_offset = workspace.add(weights->workspace.size_bytes());
  }

  /// Computes some columns of dx, for which the thread widens those columns of w; or some rows.
  void run_data(int i, const void* w, const void* dy, void* dx, void* memory) {
    if (i >= std::ssize(data->ranges)) return;
    const Range range = data->ranges[static_cast<size_t>(i)];
    if (data->second) {
      data->run(i, element_of(factor_of(form), dy, range.begin * d.K), w, nullptr,
                in_result(form, dx, range.begin * d.F), memory);
      return;
    }
    const void* columns = element_of(form.weight, w, range.begin);
    if (widens(form)) {
      auto* wide = static_cast<float*>(at_offset(memory, widened_offset)) + range.begin;
      widen_weight(form.weight, d.K, range.size(), d.F, columns, wide);
      columns = wide;
    }
    data->run(i, dy, columns, nullptr, in_result(form, dx, range.begin), memory);
  }
  /// Computes some rows, or some columns, of dw.
  void run_weights(int i, const void* x, const void* dy, float* dw, void* memory) {
    if (i >= std::ssize(weights->ranges)) return;
    const int64_t begin = weights->ranges[static_cast<size_t>(i)].begin;
    const bool columns = weights->second;
    weights->run(i, element_of(factor_of(form), dy, columns ? 0 : begin),
                 element_of(factor_of(form), x, columns ? begin : 0), nullptr,
                 dw + (columns ? begin : begin * d.F), at_offset(memory, weights_offset));
  }
  void run_sums(int i, const void* dy, float* db) const {
    if (i >= sums) return;
    const Range k = part_of(d.K, i, sums, kColumnStep);
    elementwise_loops().column_sums(d.N, d.K, k.size(), static_cast<const float*>(dy) + k.begin,
                                    db + k.begin);
  }
};

GemmBackward::GemmBackward(const GemmDims& d, bool wants_dx, bool wants_dw, Team& team,
                           GemmForm form)
    : impl_(std::make_unique<Impl>(d, wants_dx, wants_dw, team, form)) {}
GemmBackward::~GemmBackward() = default;
int64_t GemmBackward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

// dx, dw and db are computed in one parallel region: a thread that has finished its dx continues
// with its dw.
void GemmBackward::run(const void* x, const void* w, const void* dy, void* dx, float* dw, float* db,
                       void* workspace) {
  Impl& m = *impl_;
  check(m.d, x, w, dy, dx, dw);
  Contract("gemm_backward")
      .holds(dx == nullptr || m.data != nullptr, "dx", "was not prepared")
      .holds(dw == nullptr || m.weights != nullptr, "dw", "was not prepared")
      .holds(db == nullptr || !m.form.bf16, "db", "is not computed from bfloat16");
  m.team.run(m.parts, [&](int i) {
    if (dx != nullptr) m.run_data(i, w, dy, dx, workspace);
    if (dw != nullptr) m.run_weights(i, x, dy, dw, workspace);
    if (db != nullptr) m.run_sums(i, dy, db);
  });
}

}  // namespace trainyard::kernels::cpu
