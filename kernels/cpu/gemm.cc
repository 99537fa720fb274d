#include "kernels/gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// A slice should take at least about 3 us and begin at a vector boundary.
constexpr int64_t kFlopsPerThread = 500'000;
constexpr int64_t kColumnStep = 16;

int parts_of(const GemmDims& d, int64_t columns, int threads) {
  const int64_t by_flops = 2 * d.N * d.K * d.F / kFlopsPerThread;
  const int64_t by_columns = columns / kColumnStep;
  return static_cast<int>(
      std::clamp<int64_t>(std::min(by_flops, by_columns), 1, static_cast<int64_t>(threads)));
}

// One product, divided along `columns` of the result (rows for dw), with one matmul per slice.
struct SlicedMatmul {
  std::vector<Range> ranges;
  std::vector<Matmul> products;
  std::vector<int64_t> offsets;  // offset of each slice's workspace
  WorkspaceLayout workspace;

  SlicedMatmul() = default;
  template <typename F>
  SlicedMatmul(int64_t columns, int parts, const F& dims_of_slice) {
    for (int i = 0; i < parts; ++i) {
      ranges.push_back(part_of(columns, i, parts, kColumnStep));
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
/// Whether w is widened before it is multiplied.
bool widens(const GemmForm& form) { return form.weight != Stored::kF32 && !form.bf16; }

}  // namespace

// y = x w^T + b, divided along K: each thread reads its own rows of w, which stay in its cache from
// the update to the next step.
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
    const int slices = parts_of(d, d.K, team.size());
    parts_each = parts_of_slice(d, form, slices);
    product = SlicedMatmul(d.K, slices * static_cast<int>(parts_each), [&](int64_t k) {
      return MatmulDims{.M = d.N,
                        .N = k,
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

  void run_part(int i, int thread, const void* x, const void* w, const float* b, void* y,
                void* memory) {
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
  const auto parts = static_cast<int>(std::ssize(m.product.ranges));
  const auto each = static_cast<int>(m.parts_each);
  m.team.run(parts / each, [&](int thread) {
    for (int i = thread * each; i < (thread + 1) * each; ++i) {
      m.run_part(i, thread, x, w, b, y, workspace);
    }
  });
}

// dx = dy w, divided along F; dw = dy^T x and db, divided along K like w in forward.
struct GemmBackward::Impl {
  GemmDims d;
  GemmForm form;
  std::unique_ptr<SlicedMatmul> data, weights;
  int64_t weights_offset = 0, widened_offset = 0;
  int parts = 1;
  WorkspaceLayout workspace;
  Team& team;
  Impl(const GemmDims& dims, bool wants_dx, bool wants_dw, Team& t, GemmForm how)
      : d(dims), form(how), team(t) {
    parts = parts_of(d, std::min(d.K, d.F), t.size());
    if (wants_dx) {
      data = std::make_unique<SlicedMatmul>(d.F, parts, [&](int64_t f) {
        return MatmulDims{.M = d.N,
                          .N = f,
                          .K = d.K,
                          .a = {d.K, 1},
                          .b = {d.F, 1},
                          .c = {d.F, 1},
                          .accumulate = d.adds,
                          .bf16 = form.bf16,
                          .c_bf16 = form.bf16_result};
      });
      workspace.add(data->workspace.size_bytes());
      if (widens(form)) {
        widened_offset = workspace.add(d.K * d.F * static_cast<int64_t>(sizeof(float)));
      }
    }
    if (wants_dw) {
      weights = std::make_unique<SlicedMatmul>(d.K, parts, [&](int64_t k) {
        return MatmulDims{.M = k,
                          .N = d.F,
                          .K = d.N,
                          .a = {1, d.K},
                          .b = {d.F, 1},
                          .c = {d.F, 1},
                          .bf16 = form.bf16};
      });
      weights_offset = workspace.add(weights->workspace.size_bytes());
    }
  }

  // Each thread widens the columns of w that it multiplies.
  void run_data(int i, const void* w, const void* dy, void* dx, void* memory) {
    const Range range = data->ranges[static_cast<size_t>(i)];
    const void* columns = element_of(form.weight, w, range.begin);
    if (widens(form)) {
      auto* wide = static_cast<float*>(at_offset(memory, widened_offset)) + range.begin;
      widen_weight(form.weight, d.K, range.size(), d.F, columns, wide);
      columns = wide;
    }
    data->run(i, dy, columns, nullptr, in_result(form, dx, range.begin), memory);
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
    const Range k = part_of(m.d.K, i, m.parts, kColumnStep);
    if (dw != nullptr) {
      m.weights->run(i, element_of(m.form.bf16 ? Stored::kBf16 : Stored::kF32, dy, k.begin), x,
                     nullptr, dw + k.begin * m.d.F, at_offset(workspace, m.weights_offset));
    }
    if (db != nullptr) {
      elementwise_loops().column_sums(m.d.N, m.d.K, k.size(),
                                      static_cast<const float*>(dy) + k.begin, db + k.begin);
    }
  });
}

}  // namespace trainyard::kernels::cpu
