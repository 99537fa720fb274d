#include "kernels/recurrent.h"

#include <algorithm>
#include <vector>

#include "kernels/math/recurrent.h"
#include "kernels/reference/dot.h"

namespace trainyard::kernels::reference {
namespace {

/// Calls f(t, previous t or -1) in the order of the steps.
template <typename F>
void for_steps(const RecurrentDims& d, const F& f) {
  for (int64_t s = 0; s < d.T; ++s) {
    const int64_t t = d.reverse ? d.T - 1 - s : s;
    f(t, s == 0 ? -1 : d.reverse ? t + 1 : t - 1);
  }
}

/// y += a x
template <typename T>
void add_scaled(int64_t count, T a, const T* x, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] += a * x[i];
}

}  // namespace

template <typename T>
void recurrent_forward(const RecurrentDims& d, const RecurrentForwardOperands<T>& p) {
  check(d, p);
  const int64_t H = d.H;
  const int64_t GH = d.gates() * H;
  const std::vector<T> zero(static_cast<size_t>(H));
  std::vector<T> b(static_cast<size_t>(GH));
  for (int64_t n = 0; n < d.N; ++n) {
    for_steps(d, [&](int64_t t, int64_t before) {
      const int64_t row = n * d.T + t;
      const int64_t row_before = n * d.T + before;
      const T* h_before = before < 0 ? zero.data() : p.y + row_before * H;
      const T* saved_before = before < 0 ? zero.data() : p.saved + row_before * H;
      T* a = p.gates + row * GH;
      for (int64_t k = 0; k < GH; ++k) {
        a[k] = dot(d.F, p.w_ih + k * d.F, p.x + row * d.F) + (p.b_ih == nullptr ? T(0) : p.b_ih[k]);
        b[static_cast<size_t>(k)] =
            dot(H, p.w_hh + k * H, h_before) + (p.b_hh == nullptr ? T(0) : p.b_hh[k]);
      }
      for (int64_t j = 0; j < H; ++j) {
        T* saved = p.saved + row * H + j;
        T* y = p.y + row * H + j;
        const T* r = b.data() + j;
        if (d.cell == RecurrentCell::kLstm) {
          const auto g = math::Lstm::activate(a[j] + r[0], a[j + H] + r[H], a[j + 2 * H] + r[2 * H],
                                              a[j + 3 * H] + r[3 * H]);
          a[j] = g.i, a[j + H] = g.f, a[j + 2 * H] = g.g, a[j + 3 * H] = g.o;
          *saved = g.f * saved_before[j] + g.i * g.g;
          *y = g.o * math::tanh(*saved);
        } else {
          *saved = r[2 * H];
          const auto g = math::Gru::activate(a[j] + r[0], a[j + H] + r[H], a[j + 2 * H], r[2 * H]);
          a[j] = g.r, a[j + H] = g.z, a[j + 2 * H] = g.n;
          *y = (T(1) - g.z) * g.n + g.z * h_before[j];
        }
      }
    });
    const int64_t end = d.reverse ? 0 : d.T - 1;
    if (p.last != nullptr) std::copy_n(p.y + (n * d.T + end) * H, H, p.last + n * H);
  }
}

template <typename T>
void recurrent_backward(const RecurrentDims& d, const RecurrentBackwardOperands<T>& p) {
  check(d, p);
  const int64_t H = d.H;
  const int64_t GH = d.gates() * H;
  const auto zero_fill = [](T* out, int64_t count) {
    if (out != nullptr) std::fill_n(out, count, T(0));
  };
  zero_fill(p.dx, d.N * d.T * d.F);
  zero_fill(p.dw_ih, GH * d.F);
  zero_fill(p.dw_hh, GH * H);
  zero_fill(p.db_ih, GH);
  zero_fill(p.db_hh, GH);
  const std::vector<T> zero(static_cast<size_t>(H));
  std::vector<T> dh(static_cast<size_t>(H)), dc(static_cast<size_t>(H));
  std::vector<T> da(static_cast<size_t>(GH)), db(static_cast<size_t>(GH));
  for (int64_t n = 0; n < d.N; ++n) {
    std::fill(dc.begin(), dc.end(), T(0));
    std::fill(dh.begin(), dh.end(), T(0));
    if (p.dlast != nullptr) std::copy_n(p.dlast + n * H, H, dh.begin());
    std::vector<std::pair<int64_t, int64_t>> steps;
    for_steps(d, [&](int64_t t, int64_t before) { steps.emplace_back(t, before); });
    std::reverse(steps.begin(), steps.end());
    for (const auto& [t, before] : steps) {
      const int64_t row = n * d.T + t;
      const int64_t row_before = n * d.T + before;
      const T* h_before = before < 0 ? zero.data() : p.y + row_before * H;
      const T* saved_before = before < 0 ? zero.data() : p.saved + row_before * H;
      const T* a = p.gates + row * GH;
      for (int64_t j = 0; j < H; ++j) {
        const auto i = static_cast<size_t>(j);
        if (p.dy != nullptr) dh[i] += p.dy[row * H + j];
        const auto at = [&](int64_t k) { return static_cast<size_t>(k * H + j); };
        const T saved = p.saved[row * H + j];
        if (d.cell == RecurrentCell::kLstm) {
          const auto g = math::Lstm::backward<T>({a[j], a[j + H], a[j + 2 * H], a[j + 3 * H]},
                                                 saved, saved_before[j], dh[i], dc[i]);
          da[at(0)] = g.i, da[at(1)] = g.f, da[at(2)] = g.g, da[at(3)] = g.o;
          for (int64_t k = 0; k < 4; ++k) db[at(k)] = da[at(k)];
          dh[i] = 0;
        } else {
          const auto g =
              math::Gru::backward<T>({a[j], a[j + H], a[j + 2 * H]}, saved, h_before[j], dh[i]);
          da[at(0)] = db[at(0)] = g.r;
          da[at(1)] = db[at(1)] = g.z;
          da[at(2)] = g.n;
          db[at(2)] = g.n * a[j];
        }
      }
      for (int64_t k = 0; k < GH; ++k) {
        const T ga = da[static_cast<size_t>(k)];
        const T gb = db[static_cast<size_t>(k)];
        add_scaled(H, gb, p.w_hh + k * H, dh.data());
        if (p.dx != nullptr) add_scaled(d.F, ga, p.w_ih + k * d.F, p.dx + row * d.F);
        if (p.dw_ih != nullptr) add_scaled(d.F, ga, p.x + row * d.F, p.dw_ih + k * d.F);
        if (p.dw_hh != nullptr) add_scaled(H, gb, h_before, p.dw_hh + k * H);
        if (p.db_ih != nullptr) p.db_ih[k] += ga;
        if (p.db_hh != nullptr) p.db_hh[k] += gb;
      }
    }
  }
}

template void recurrent_forward(const RecurrentDims&, const RecurrentForwardOperands<float>&);
template void recurrent_forward(const RecurrentDims&, const RecurrentForwardOperands<double>&);
template void recurrent_backward(const RecurrentDims&, const RecurrentBackwardOperands<float>&);
template void recurrent_backward(const RecurrentDims&, const RecurrentBackwardOperands<double>&);

}  // namespace trainyard::kernels::reference
