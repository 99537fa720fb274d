// Access   one thread per unit of each sequence: adjacent threads process adjacent units, in whole
//          cache lines of every gate. forward and backward each access 3 G + 4 values of 4 B for
//          each unit.
// Time     the data are in the L2 cache, so the launch, about 3 us, determines the time of a step,
//          in addition to the launch of its matrix product. LSTM, N = 64, T = 256, H = 512: 0.8 ms
//          of these launches in each direction.
#include "kernels/recurrent.h"

#include "kernels/cuda/launch.h"
#include "kernels/math/recurrent.h"

namespace trainyard::kernels::cuda {
namespace {

TRAINYARD_KERNEL void step_forward(RecurrentDims d, int64_t t, int64_t before,
                                   RecurrentForwardStep p) {
  const int64_t H = d.H, GH = d.gates() * H;
  for (int64_t i = thread_index(); i < d.N * H; i += thread_count()) {
    const int64_t n = i / H, j = i % H, row = n * d.T + t;
    float a[4] = {}, b[4] = {};
    TRAINYARD_UNROLL
    for (int k = 0; k < 4; ++k) {
      if (k == d.gates()) continue;
      const int64_t unit = k * H + j;
      a[k] = p.a[row * GH + unit] + (p.b_ih == nullptr ? 0.0f : p.b_ih[unit]);
      b[k] = (before < 0 ? 0.0f : p.b[n * GH + unit]) + (p.b_hh == nullptr ? 0.0f : p.b_hh[unit]);
    }
    const auto keep = [&](int64_t gate, float value) {
      p.gates.set(row * GH + gate * H + j, value);
    };
    float y;
    if (d.cell == RecurrentCell::kLstm) {
      const auto g = math::Lstm::activate(a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]);
      keep(0, g.i), keep(1, g.f), keep(2, g.g), keep(3, g.o);
      const float c_before = before < 0 ? 0.0f : p.saved[(n * d.T + before) * H + j];
      const float c = g.f * c_before + g.i * g.g;
      p.saved[row * H + j] = c;
      y = g.o * math::tanh(c);
    } else {
      const auto g = math::Gru::activate(a[0] + b[0], a[1] + b[1], a[2], b[2]);
      keep(0, g.r), keep(1, g.z), keep(2, g.n);
      p.saved[row * H + j] = b[2];
      y = (1.0f - g.z) * g.n + g.z * (before < 0 ? 0.0f : p.h[i]);
    }
    p.y.set(row * H + j, y);
    if (p.last) p.last.set(i, y);
    p.h[i] = y;
    if (p.h_narrow) p.h_narrow.set(i, y);
  }
}

TRAINYARD_KERNEL void step_backward(RecurrentDims d, int64_t t, int64_t before, bool is_last,
                                    RecurrentBackwardStep p) {
  const int64_t H = d.H, GH = d.gates() * H;
  for (int64_t i = thread_index(); i < d.N * H; i += thread_count()) {
    const int64_t n = i / H, j = i % H, row = n * d.T + t, row_before = n * d.T + before;
    const auto gate = [&](int64_t k) { return p.gates[row * GH + k * H + j]; };
    float dh = !is_last ? p.dh[i] : p.dlast ? p.dlast[i] : 0.0f;
    if (p.dy) dh += p.dy[row * H + j];
    const float saved = p.saved[row * H + j];
    const float h_before = before < 0 ? 0.0f : p.y[row_before * H + j];
    float da[4] = {}, db[4] = {};
    if (d.cell == RecurrentCell::kLstm) {
      float dc = is_last ? 0.0f : p.dc[i];
      const float c_before = before < 0 ? 0.0f : p.saved[row_before * H + j];
      const auto g = math::Lstm::backward<float>({gate(0), gate(1), gate(2), gate(3)}, saved,
                                                 c_before, dh, dc);
      da[0] = db[0] = g.i, da[1] = db[1] = g.f, da[2] = db[2] = g.g, da[3] = db[3] = g.o;
      p.dc[i] = dc;
    } else {
      const float r = gate(0);
      const auto g = math::Gru::backward<float>({r, gate(1), gate(2)}, saved, h_before, dh);
      da[0] = db[0] = g.r, da[1] = db[1] = g.z;
      da[2] = g.n;
      db[2] = g.n * r;
      p.dh[i] = dh;
    }
    p.h_before.set(row * H + j, h_before);
    TRAINYARD_UNROLL
    for (int k = 0; k < 4; ++k) {
      if (k == d.gates()) continue;
      const int64_t unit = k * H + j;
      p.da.set(row * GH + unit, da[k]);
      if (p.db) p.db.set(row * GH + unit, db[k]);
      p.step.set(n * GH + unit, db[k]);
    }
  }
}

}  // namespace

void recurrent_step_forward(const RecurrentDims& d, int64_t t, int64_t before,
                            const RecurrentForwardStep& p, CUstream_st* stream) {
  check("recurrent_step_forward", d)
      .given("a", p.a)
      .given("b", p.b)
      .given("y", p.y)
      .given("gates", p.gates)
      .given("saved", p.saved)
      .given("h", p.h);
  launch(grid_for(d.N * d.H), stream, step_forward, d, t, before, p);
}

void recurrent_step_backward(const RecurrentDims& d, int64_t t, int64_t before, bool is_last,
                             const RecurrentBackwardStep& p, CUstream_st* stream) {
  check("recurrent_step_backward", d)
      .given("gates", p.gates)
      .given("y", p.y)
      .given("saved", p.saved)
      .given("dh", p.dh)
      .given("dc", p.dc)
      .given("da", p.da)
      .given("step", p.step)
      .given("h_before", p.h_before);
  launch(grid_for(d.N * d.H), stream, step_backward, d, t, before, is_last, p);
}

}  // namespace trainyard::kernels::cuda
