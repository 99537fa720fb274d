#include "kernels/gemm.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd/elementwise.h"
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

  template <typename F>
  SlicedMatmul(int64_t columns, int parts, const F& dims_of_slice) {
    for (int i = 0; i < parts; ++i) {
      ranges.push_back(part_of(columns, i, parts, kColumnStep));
      products.emplace_back(dims_of_slice(ranges.back().size()));
      offsets.push_back(workspace.add(products.back().workspace_bytes()));
    }
  }
  void run(int i, const float* a, const float* b, const float* bias, float* c, void* memory) {
    const auto index = static_cast<size_t>(i);
    products[index].run(a, b, bias, c, at_offset(memory, offsets[index]));
  }
};

}  // namespace

// y = x w^T + b, divided along K: each thread reads its own rows of w, which stay in its cache from
// the update to the next step.
struct GemmForward::Impl {
  GemmDims d;
  SlicedMatmul product;
  Team& team;
  Impl(const GemmDims& dims, bool bias, Team& t)
      : d(dims),
        product(d.K, parts_of(d, d.K, t.size()),
                [&](int64_t k) {
                  return MatmulDims{.M = d.N,
                                    .N = k,
                                    .K = d.F,
                                    .a = {d.F, 1},
                                    .b = {1, d.F},
                                    .c = {d.K, 1},
                                    .bias = bias,
                                    .rows_alike = true};
                }),
        team(t) {}
};

GemmForward::GemmForward(const GemmDims& d, bool bias, Team& team)
    : impl_(std::make_unique<Impl>(d, bias, team)) {}
GemmForward::~GemmForward() = default;
int64_t GemmForward::workspace_bytes() const { return impl_->product.workspace.size_bytes(); }

void GemmForward::run(const float* x, const float* w, const float* b, float* y, void* workspace) {
  check(impl_->d, x, w, y);
  SlicedMatmul& product = impl_->product;
  impl_->team.run(static_cast<int>(product.ranges.size()), [&](int i) {
    const int64_t k = product.ranges[static_cast<size_t>(i)].begin;
    product.run(i, x, w + k * impl_->d.F, b == nullptr ? nullptr : b + k, y + k, workspace);
  });
}

// dx = dy w, divided along F; dw = dy^T x and db, divided along K like w in forward.
struct GemmBackward::Impl {
  GemmDims d;
  std::unique_ptr<SlicedMatmul> data, weights;
  int64_t weights_offset = 0;
  int parts = 1;
  WorkspaceLayout workspace;
  Team& team;
  Impl(const GemmDims& dims, bool wants_dx, bool wants_dw, Team& t) : d(dims), team(t) {
    parts = parts_of(d, std::min(d.K, d.F), t.size());
    if (wants_dx) {
      data = std::make_unique<SlicedMatmul>(d.F, parts, [&](int64_t f) {
        return MatmulDims{d.N, f, d.K, {d.K, 1}, {d.F, 1}, {d.F, 1}};
      });
      workspace.add(data->workspace.size_bytes());
    }
    if (wants_dw) {
      weights = std::make_unique<SlicedMatmul>(d.K, parts, [&](int64_t k) {
        return MatmulDims{k, d.F, d.N, {1, d.K}, {d.F, 1}, {d.F, 1}};
      });
      weights_offset = workspace.add(weights->workspace.size_bytes());
    }
  }
};

GemmBackward::GemmBackward(const GemmDims& d, bool wants_dx, bool wants_dw, Team& team)
    : impl_(std::make_unique<Impl>(d, wants_dx, wants_dw, team)) {}
GemmBackward::~GemmBackward() = default;
int64_t GemmBackward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

// dx, dw and db are computed in one parallel region: a thread that has finished its dx continues
// with its dw.
void GemmBackward::run(const float* x, const float* w, const float* dy, float* dx, float* dw,
                       float* db, void* workspace) {
  Impl& m = *impl_;
  check<float>(m.d, x, w, dy, dx, dw);
  Contract("gemm_backward")
      .holds(dx == nullptr || m.data != nullptr, "dx", "was not prepared")
      .holds(dw == nullptr || m.weights != nullptr, "dw", "was not prepared");
  m.team.run(m.parts, [&](int i) {
    if (dx != nullptr) {
      const int64_t f = m.data->ranges[static_cast<size_t>(i)].begin;
      m.data->run(i, dy, w + f, nullptr, dx + f, workspace);
    }
    const Range k = part_of(m.d.K, i, m.parts, kColumnStep);
    if (dw != nullptr) {
      m.weights->run(i, dy + k.begin, x, nullptr, dw + k.begin * m.d.F,
                     at_offset(workspace, m.weights_offset));
    }
    if (db != nullptr) {
      elementwise_loops().column_sums(m.d.N, m.d.K, k.size(), dy + k.begin, db + k.begin);
    }
  });
}

}  // namespace trainyard::kernels::cpu
