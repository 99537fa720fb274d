#include "kernels/recurrent.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/recurrent.h"
#include "kernels/cpu/team.h"
#include "kernels/gemm.h"

namespace trainyard::kernels::cpu {
namespace {

// The minimum number of batch rows per thread; with fewer, the recurrent product is too small to
// split.
constexpr int64_t kRowsPerThread = 2;

// Packed weights up to this size stay in a core's L2 cache from step to step. The product with x is
// then computed within the step, so that its result is never written to memory. Otherwise it is
// computed before all steps (lstm, 32 rows of 128 steps, 2 threads: 6.0 ms within and 7.0 ms before
// the steps with 128 units; 22.4 ms and 22.1 ms with 256 units).
constexpr int64_t kNearBytes = 1280 << 10;

constexpr int64_t kFloat = sizeof(float);

std::vector<Range> parts_of(const RecurrentDims& d, int threads) {
  const int count =
      static_cast<int>(std::clamp<int64_t>(d.N / kRowsPerThread, 1, static_cast<int64_t>(threads)));
  std::vector<Range> parts;
  for (int i = 0; i < count; ++i) parts.push_back(part_of(d.N, i, count));
  return parts;
}

int64_t padded_units(const RecurrentDims& d) {
  return (d.H + kUnitStep - 1) / kUnitStep * kUnitStep;
}

const CellLoops& loops_of(const RecurrentDims& d) {
  return d.cell == RecurrentCell::kLstm ? recurrent_loops().lstm : recurrent_loops().gru;
}

/// Position t of a step of the run, and the position of the previous step or -1.
struct Step {
  int64_t t, before;
};
Step step_of(const RecurrentDims& d, int64_t s) {
  const int64_t t = d.reverse ? d.T - 1 - s : s;
  return {t, s == 0 ? -1 : d.reverse ? t + 1 : t - 1};
}

float* floats(void* workspace, int64_t offset) {
  return static_cast<float*>(at_offset(workspace, offset));
}

/// Calls f(begin, end) on parts of the units that begin at multiples of kUnitStep.
template <typename F>
void for_units(const RecurrentDims& d, Team& team, const F& f) {
  team.parallel_for(padded_units(d) / kUnitStep, 1,
                    [&](int64_t begin, int64_t end) { f(begin * kUnitStep, end * kUnitStep); });
}

}  // namespace

struct RecurrentForward::Impl {
  RecurrentDims d;
  CellSizes sizes;
  std::unique_ptr<GemmForward> input;  // computes w_ih x before the steps, unless the steps do so
  std::vector<Range> parts;
  int64_t packed_offset = 0, inputs_offset = 0, sums_offset = 0, c_offset = 0;
  WorkspaceLayout workspace;
  Team& team;

  Impl(const RecurrentDims& dims, Team& t)
      : d(dims), sizes{d.F, d.H}, parts(parts_of(d, t.size())), team(t) {
    if (loops_of(d).packed_floats(sizes) * kFloat > kNearBytes) {
      sizes.F = 0;
      input = std::make_unique<GemmForward>(GemmDims{d.N * d.T, d.gates() * d.H, d.F}, false, t);
      workspace.add(input->workspace_bytes());
    }
    packed_offset = workspace.add(loops_of(d).packed_floats(sizes) * kFloat);
    inputs_offset = workspace.add(d.N * (sizes.F + d.H) * kFloat);
    sums_offset = workspace.add(d.N * 4 * padded_units(d) * kFloat);
    c_offset = workspace.add(d.N * d.H * kFloat);
  }

  void run_part(const Range& rows, const RecurrentForwardOperands<float>& p, void* memory) {
    const int64_t H = d.H;
    const int64_t first = rows.begin * d.T;  // first row in [N T, ...]
    float* inputs = floats(memory, inputs_offset) + rows.begin * (sizes.F + H);
    float* sums = floats(memory, sums_offset) + rows.begin * 4 * padded_units(d);
    float* c = floats(memory, c_offset) + rows.begin * H;
    std::memset(c, 0, static_cast<size_t>(rows.size() * H * kFloat));
    for (int64_t s = 0; s < d.T; ++s) {
      const auto [t, before] = step_of(d, s);
      const int64_t row = first + t;
      loops_of(d).forward(sizes, {rows.size(), d.T}, floats(memory, packed_offset),
                          {.x = p.x + row * d.F,
                           .h_before = before < 0 ? nullptr : p.y + (first + before) * H,
                           .gates = p.gates + row * d.gates() * H,
                           .saved = p.saved + row * H,
                           .y = p.y + row * H,
                           .inputs = inputs,
                           .sums = sums,
                           .c = c});
    }
    if (p.last == nullptr) return;
    const int64_t end = d.reverse ? 0 : d.T - 1;
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      std::memcpy(p.last + n * H, p.y + (n * d.T + end) * H, static_cast<size_t>(H * kFloat));
    }
  }
};

RecurrentForward::RecurrentForward(const RecurrentDims& d, Team& team)
    : impl_(std::make_unique<Impl>(d, team)) {}
RecurrentForward::~RecurrentForward() = default;
int64_t RecurrentForward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

void RecurrentForward::run(const RecurrentForwardOperands<float>& p, void* workspace) {
  Impl& m = *impl_;
  check(m.d, p);
  Contract("recurrent_forward").workspace(Run{m.team, workspace});
  if (m.input != nullptr) m.input->run(p.x, p.w_ih, nullptr, p.gates, workspace);
  for_units(m.d, m.team, [&](int64_t begin, int64_t end) {
    loops_of(m.d).pack(m.sizes, begin, end, {p.w_ih, p.w_hh, p.b_ih, p.b_hh},
                       floats(workspace, m.packed_offset));
  });
  m.team.run(static_cast<int>(m.parts.size()),
             [&](int i) { m.run_part(m.parts[static_cast<size_t>(i)], p, workspace); });
}

// The steps store da and db, the gradients of the results of the two products; the gradients of all
// weights are computed from them after the last step.
struct RecurrentBackward::Impl {
  RecurrentDims d;
  GemmBackward input;
  std::unique_ptr<GemmBackward> recurrent;  // null if there is only one row: dw_hh is then 0
  std::vector<Range> parts;
  int64_t zero_offset = 0, packed_offset = 0, da_offset = 0, db_offset = 0;
  int64_t dh_offset = 0, dc_offset = 0, rows_offset = 0, sums_offset = 0;
  int64_t input_offset = 0, recurrent_offset = 0;
  WorkspaceLayout workspace;
  Team& team;

  Impl(const RecurrentDims& dims, bool wants_dx, Team& t)
      : d(dims),
        input({d.N * d.T, d.gates() * d.H, d.F}, wants_dx, true, t),
        parts(parts_of(d, t.size())),
        team(t) {
    const int64_t GH = d.gates() * d.H, width = padded_units(d), all = d.N * d.T;
    zero_offset = workspace.add(d.H * kFloat);
    packed_offset = workspace.add(GH * width * kFloat);
    da_offset = workspace.add(all * GH * kFloat);
    // In lstm both products have the same gradient.
    db_offset = lstm() ? da_offset : workspace.add(all * GH * kFloat);
    dh_offset = workspace.add(d.N * width * kFloat);
    dc_offset = workspace.add(d.N * width * kFloat);
    rows_offset = workspace.add(d.N * GH * kFloat);
    sums_offset = workspace.add(2 * GH * static_cast<int64_t>(parts.size()) * kFloat);
    input_offset = workspace.add(input.workspace_bytes());
    if (all > 1) {
      recurrent = std::make_unique<GemmBackward>(GemmDims{all - 1, GH, d.H}, false, true, t);
      recurrent_offset = workspace.add(recurrent->workspace_bytes());
    }
  }

  bool lstm() const { return d.cell == RecurrentCell::kLstm; }
  /// Returns the sums of da and db over the rows of a part.
  float* da_sum(size_t part, void* memory) const {
    return floats(memory, sums_offset) + static_cast<int64_t>(part) * 2 * d.gates() * d.H;
  }
  float* db_sum(size_t part, void* memory) const {
    return da_sum(part, memory) + (lstm() ? 0 : d.gates() * d.H);
  }

  void run_part(size_t part, const RecurrentBackwardOperands<float>& p, void* memory) {
    const Range& rows = parts[part];
    const int64_t H = d.H, GH = d.gates() * H, width = padded_units(d);
    const int64_t first = rows.begin * d.T;
    const float* zero = floats(memory, zero_offset);
    float* dh = floats(memory, dh_offset) + rows.begin * width;
    float* dc = floats(memory, dc_offset) + rows.begin * width;
    float* db_rows = floats(memory, rows_offset) + rows.begin * GH;
    std::memset(dc, 0, static_cast<size_t>(rows.size() * width * kFloat));
    std::memset(dh, 0, static_cast<size_t>(rows.size() * width * kFloat));
    std::memset(da_sum(part, memory), 0, static_cast<size_t>(2 * GH * kFloat));
    for (int64_t n = 0; n < rows.size() && p.dlast != nullptr; ++n) {
      std::memcpy(dh + n * width, p.dlast + (rows.begin + n) * H, static_cast<size_t>(H * kFloat));
    }
    for (int64_t s = d.T - 1; s >= 0; --s) {
      const auto [t, before] = step_of(d, s);
      const bool starts = before < 0;
      const int64_t row = first + t, row_before = first + before;
      loops_of(d).backward({d.F, H}, {rows.size(), d.T},
                           {.gates = p.gates + row * GH,
                            .saved = p.saved + row * H,
                            .h_before = starts ? zero : p.y + row_before * H,
                            .c_before = starts ? zero : p.saved + row_before * H,
                            .dy = p.dy == nullptr ? nullptr : p.dy + row * H,
                            .before_row = starts ? 0 : d.T * H,
                            .dh = dh,
                            .dc = dc,
                            .da = floats(memory, da_offset) + row * GH,
                            .db = floats(memory, db_offset) + row * GH,
                            .db_rows = db_rows,
                            .da_sum = da_sum(part, memory),
                            .db_sum = db_sum(part, memory)});
      if (starts) break;
      recurrent_loops().back_product(rows.size(), GH, H, db_rows, floats(memory, packed_offset),
                                     dh);
    }
  }

  void add_up(float* (Impl::*sum_of)(size_t, void*) const, float* out, void* memory) const {
    if (out == nullptr) return;
    const int64_t GH = d.gates() * d.H;
    std::copy_n((this->*sum_of)(0, memory), GH, out);
    for (size_t part = 1; part < parts.size(); ++part) {
      elementwise_loops().add(GH, out, (this->*sum_of)(part, memory), out);
    }
  }

  /// Computes dw_hh from the rows of db and the h that each was multiplied by, which is the
  /// previous step's row of y. The first step has h = 0, so its row of db is cleared, and the
  /// product runs over all rows but one.
  void recurrent_weights(const float* y, float* dw_hh, void* memory) {
    float* db = floats(memory, db_offset);
    const int64_t GH = d.gates() * d.H;
    if (recurrent == nullptr) {
      std::memset(dw_hh, 0, static_cast<size_t>(GH * d.H * kFloat));
      return;
    }
    const int64_t starts = step_of(d, 0).t;
    for (int64_t n = 0; n < d.N; ++n) {
      std::memset(db + (n * d.T + starts) * GH, 0, static_cast<size_t>(GH * kFloat));
    }
    const int64_t y_row = d.reverse ? 1 : 0;
    recurrent->run(y + y_row * d.H, nullptr, db + (1 - y_row) * GH, nullptr, dw_hh, nullptr,
                   at_offset(memory, recurrent_offset));
  }
};

RecurrentBackward::RecurrentBackward(const RecurrentDims& d, bool wants_dx, Team& team)
    : impl_(std::make_unique<Impl>(d, wants_dx, team)) {}
RecurrentBackward::~RecurrentBackward() = default;
int64_t RecurrentBackward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

void RecurrentBackward::run(const RecurrentBackwardOperands<float>& p, void* workspace) {
  Impl& m = *impl_;
  check(m.d, p);
  Contract("recurrent_backward").workspace(Run{m.team, workspace});
  const int64_t GH = m.d.gates() * m.d.H;
  std::memset(floats(workspace, m.zero_offset), 0, static_cast<size_t>(m.d.H * kFloat));
  for_units(m.d, m.team, [&](int64_t begin, int64_t end) {
    recurrent_loops().pack_back(GH, m.d.H, begin, end, p.w_hh, floats(workspace, m.packed_offset));
  });
  m.team.run(static_cast<int>(m.parts.size()),
             [&](int i) { m.run_part(static_cast<size_t>(i), p, workspace); });
  m.add_up(&Impl::da_sum, p.db_ih, workspace);
  m.add_up(&Impl::db_sum, p.db_hh, workspace);
  m.input.run(p.x, p.w_ih, floats(workspace, m.da_offset), p.dx, p.dw_ih, nullptr,
              at_offset(workspace, m.input_offset));
  if (p.dw_hh != nullptr) m.recurrent_weights(p.y, p.dw_hh, workspace);
}

}  // namespace trainyard::kernels::cpu
