#include "kernels/recurrent.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/recurrent.h"
#include "kernels/cpu/team.h"
#include "kernels/gemm.h"

namespace trainyard::kernels::cpu {
namespace {

// Rows of the batch that are worth a thread: below, the recurrent product is too small to share.
constexpr int64_t kRowsPerThread = 2;

int parts_of(const RecurrentDims& d, int threads) {
  return static_cast<int>(
      std::clamp<int64_t>(d.N / kRowsPerThread, 1, static_cast<int64_t>(threads)));
}

constexpr int64_t kFloat = sizeof(float);

/// Step s of the run, and the step before it or -1.
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

}  // namespace

struct RecurrentForward::Impl {
  // What a thread needs for its rows.
  struct Part {
    Range rows;
    Matmul product;  // [rows, H] x w_hh' -> [rows, G H]
    int64_t product_offset = 0, recurrent_offset = 0;
  };
  RecurrentDims d;
  GemmForward input;
  std::vector<Part> parts;
  int64_t zero_offset = 0;
  WorkspaceLayout workspace;
  Team& team;

  Impl(const RecurrentDims& dims, bool bias, Team& t)
      : d(dims), input({d.N * d.T, d.gates() * d.H, d.F}, bias, t), team(t) {
    const int64_t GH = d.gates() * d.H;
    workspace.add(input.workspace_bytes());
    zero_offset = workspace.add(d.H * kFloat);
    const int count = parts_of(d, t.size());
    for (int i = 0; i < count; ++i) {
      Part part;
      part.rows = part_of(d.N, i, count);
      const int64_t rows = part.rows.size();
      part.product = Matmul({rows, GH, d.H, {d.T * d.H, 1}, {1, d.H}, {GH, 1}, bias});
      part.product_offset = workspace.add(part.product.workspace_bytes());
      part.recurrent_offset = workspace.add(rows * GH * kFloat);
      parts.push_back(std::move(part));
    }
  }

  void run_part(Part& part, const RecurrentForwardArgs<float>& p, void* memory) {
    const int64_t H = d.H;
    const int64_t GH = d.gates() * H;
    const int64_t rows = part.rows.size();
    const int64_t first = part.rows.begin * d.T;  // row of [N T, ...]
    float* recurrent = floats(memory, part.recurrent_offset);
    const float* zero = floats(memory, zero_offset);
    for (int64_t s = 0; s < d.T; ++s) {
      const auto [t, before] = step_of(d, s);
      const bool starts = before < 0;
      const int64_t row = first + t;
      const int64_t row_before = first + before;
      if (!starts) {
        part.product.run(p.y + row_before * H, p.w_hh, p.b_hh, recurrent,
                         at_offset(memory, part.product_offset));
      } else {
        for (int64_t n = 0; n < rows; ++n) {
          if (p.b_hh == nullptr) {
            std::memset(recurrent + n * GH, 0, static_cast<size_t>(GH * kFloat));
          } else {
            std::memcpy(recurrent + n * GH, p.b_hh, static_cast<size_t>(GH * kFloat));
          }
        }
      }
      const RecurrentStep step{rows, H, d.T, starts ? 0 : d.T * H};
      if (d.cell == RecurrentCell::kLstm) {
        recurrent_loops().lstm_forward(step, recurrent, starts ? zero : p.saved + row_before * H,
                                       p.gates + row * GH, p.saved + row * H, p.y + row * H);
      } else {
        recurrent_loops().gru_forward(step, recurrent, starts ? zero : p.y + row_before * H,
                                      p.gates + row * GH, p.saved + row * H, p.y + row * H);
      }
    }
    if (p.last == nullptr) return;
    const int64_t end = d.reverse ? 0 : d.T - 1;
    for (int64_t n = part.rows.begin; n < part.rows.end; ++n) {
      std::memcpy(p.last + n * H, p.y + (n * d.T + end) * H, static_cast<size_t>(H * kFloat));
    }
  }
};

RecurrentForward::RecurrentForward(const RecurrentDims& d, bool bias, Team& team)
    : impl_(std::make_unique<Impl>(d, bias, team)) {}
RecurrentForward::~RecurrentForward() = default;
int64_t RecurrentForward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

void RecurrentForward::run(const RecurrentForwardArgs<float>& p, void* workspace) {
  Impl& m = *impl_;
  m.input.run(p.x, p.w_ih, p.b_ih, p.gates, workspace);
  std::memset(floats(workspace, m.zero_offset), 0, static_cast<size_t>(m.d.H * kFloat));
  m.team.run(static_cast<int>(m.parts.size()),
             [&](int i) { m.run_part(m.parts[static_cast<size_t>(i)], p, workspace); });
}

struct RecurrentBackward::Impl {
  struct Part {
    Range rows;
    Matmul product;  // db [rows, G H] x w_hh -> [rows, H]
    int64_t product_offset = 0, dh_offset = 0, dc_offset = 0, sum_offset = 0;
  };
  RecurrentDims d;
  GemmBackward input, recurrent;
  std::vector<Part> parts;
  int64_t zero_offset = 0, da_offset = 0, db_offset = 0, h_offset = 0;
  int64_t input_offset = 0, recurrent_offset = 0;
  WorkspaceLayout workspace;
  Team& team;

  Impl(const RecurrentDims& dims, bool wants_dx, Team& t)
      : d(dims),
        input({d.N * d.T, d.gates() * d.H, d.F}, wants_dx, true, t),
        recurrent({d.N * d.T, d.gates() * d.H, d.H}, false, true, t),
        team(t) {
    const int64_t GH = d.gates() * d.H;
    const int64_t all = d.N * d.T;
    zero_offset = workspace.add(d.H * kFloat);
    da_offset = workspace.add(all * GH * kFloat);
    // The two products of lstm have one gradient.
    db_offset = d.cell == RecurrentCell::kLstm ? da_offset : workspace.add(all * GH * kFloat);
    h_offset = workspace.add(all * d.H * kFloat);
    input_offset = workspace.add(input.workspace_bytes());
    recurrent_offset = workspace.add(recurrent.workspace_bytes());
    const int count = parts_of(d, t.size());
    for (int i = 0; i < count; ++i) {
      Part part;
      part.rows = part_of(d.N, i, count);
      const int64_t rows = part.rows.size();
      part.product = Matmul({rows, d.H, GH, {d.T * GH, 1}, {d.H, 1}, {d.H, 1}});
      part.product_offset = workspace.add(part.product.workspace_bytes());
      part.dh_offset = workspace.add(rows * d.H * kFloat);
      part.dc_offset = workspace.add(rows * d.H * kFloat);
      part.sum_offset = workspace.add(rows * d.H * kFloat);
      parts.push_back(std::move(part));
    }
  }

  void run_part(Part& part, const RecurrentBackwardArgs<float>& p, void* memory) {
    const int64_t H = d.H;
    const int64_t GH = d.gates() * H;
    const int64_t rows = part.rows.size();
    const int64_t first = part.rows.begin * d.T;
    const auto row_bytes = static_cast<size_t>(rows * H * kFloat);
    const float* zero = floats(memory, zero_offset);
    float* dh = floats(memory, part.dh_offset);
    float* dc = floats(memory, part.dc_offset);
    float* product = floats(memory, part.sum_offset);
    float* da = floats(memory, da_offset);
    float* db = floats(memory, db_offset);
    float* h = floats(memory, h_offset);
    std::memset(dc, 0, row_bytes);
    if (p.dlast == nullptr) {
      std::memset(dh, 0, row_bytes);
    } else {
      std::memcpy(dh, p.dlast + part.rows.begin * H, row_bytes);
    }
    for (int64_t s = d.T - 1; s >= 0; --s) {
      const auto [t, before] = step_of(d, s);
      const bool starts = before < 0;
      const int64_t row = first + t;
      const int64_t row_before = first + before;
      const float* h_before = starts ? zero : p.y + row_before * H;
      const RecurrentStep step{rows, H, d.T, starts ? 0 : d.T * H};
      for (int64_t n = 0; n < rows; ++n) {  // what w_hh was multiplied with, in one piece
        std::memcpy(h + (row + n * d.T) * H, h_before + n * step.stride_before,
                    static_cast<size_t>(H * kFloat));
      }
      const float* dy = p.dy == nullptr ? nullptr : p.dy + row * H;
      if (d.cell == RecurrentCell::kLstm) {
        recurrent_loops().lstm_backward(step, p.gates + row * GH, p.saved + row * H,
                                        starts ? zero : p.saved + row_before * H, dy, dh, dc,
                                        da + row * GH);
      } else {
        recurrent_loops().gru_backward(step, p.gates + row * GH, p.saved + row * H, h_before, dy,
                                       dh, da + row * GH, db + row * GH);
      }
      if (starts) break;
      float* out = d.cell == RecurrentCell::kLstm ? dh : product;
      part.product.run(db + row * GH, p.w_hh, nullptr, out, at_offset(memory, part.product_offset));
      if (out == product) elementwise_loops().add(rows * H, dh, product, dh);
    }
  }
};

RecurrentBackward::RecurrentBackward(const RecurrentDims& d, bool wants_dx, Team& team)
    : impl_(std::make_unique<Impl>(d, wants_dx, team)) {}
RecurrentBackward::~RecurrentBackward() = default;
int64_t RecurrentBackward::workspace_bytes() const { return impl_->workspace.size_bytes(); }

void RecurrentBackward::run(const RecurrentBackwardArgs<float>& p, void* workspace) {
  Impl& m = *impl_;
  std::memset(floats(workspace, m.zero_offset), 0, static_cast<size_t>(m.d.H * kFloat));
  m.team.run(static_cast<int>(m.parts.size()),
             [&](int i) { m.run_part(m.parts[static_cast<size_t>(i)], p, workspace); });
  m.input.run(p.x, p.w_ih, floats(workspace, m.da_offset), p.dx, p.dw_ih, p.db_ih,
              at_offset(workspace, m.input_offset));
  m.recurrent.run(floats(workspace, m.h_offset), p.w_hh, floats(workspace, m.db_offset), nullptr,
                  p.dw_hh, p.db_hh, at_offset(workspace, m.recurrent_offset));
}

}  // namespace trainyard::kernels::cpu
