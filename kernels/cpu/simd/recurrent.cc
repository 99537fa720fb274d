// Steps of recurrent cells, which apply the formulas of kernels/math/recurrent.h to whole rows.
#include "kernels/cpu/simd/recurrent.h"

#include <cstring>

#include "kernels/cpu/simd/products.h"
#include "kernels/cpu/simd/variant.h"
#include "kernels/math/recurrent.h"

namespace trainyard::kernels::cpu {
namespace {

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
size_t bytes_of(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }
int64_t padded(int64_t H) { return (H + kUnitStep - 1) / kUnitStep * kUnitStep; }

void add_row(int64_t count, const float* x, float* y) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] += x[j];
}

/// Prefetches a row of the next sequence during work on the current one; the distance is too large
/// for the hardware prefetcher.
template <bool kWrite>
void fetch(int64_t count, const float* row) {
  constexpr int64_t kLine = 16;
  for (int64_t j = 0; j < count; j += kLine) __builtin_prefetch(row + j, kWrite ? 1 : 0);
}

// A panel has four columns of kLanes units, the sums that a unit's activation needs. The products
// with x are added to the first kGates columns, those with h to the last kGates. kInput and
// kRecurrent give the gate that a column belongs to, -1 if none.
constexpr int64_t kColumns = 4;
constexpr int64_t kWidth = kColumns * kLanes;

struct Lstm {
  static constexpr int64_t kGates = 4;
  static constexpr int kInput[kColumns] = {0, 1, 2, 3}, kRecurrent[kColumns] = {0, 1, 2, 3};

  [[gnu::always_inline]] static void activate(int64_t units, int64_t H, const float* sum,
                                              const float* /*h_before*/, float* c, float* a,
                                              float* saved, float* y) {
#pragma omp simd
    for (int64_t j = 0; j < units; ++j) {
      const auto g =
          math::Lstm::activate(sum[j], sum[j + kLanes], sum[j + 2 * kLanes], sum[j + 3 * kLanes]);
      const float cell = g.f * c[j] + g.i * g.g;
      a[j] = g.i;
      a[j + H] = g.f;
      a[j + 2 * H] = g.g;
      a[j + 3 * H] = g.o;
      c[j] = saved[j] = cell;
      y[j] = g.o * math::tanh(cell);
    }
  }
};

// The two parts of the candidate are separate columns, because the reset gate only multiplies the
// recurrent part.
struct Gru {
  static constexpr int64_t kGates = 3;
  static constexpr int kInput[kColumns] = {2, 0, 1, -1}, kRecurrent[kColumns] = {-1, 0, 1, 2};

  [[gnu::always_inline]] static void activate(int64_t units, int64_t H, const float* sum,
                                              const float* h_before, float* /*c*/, float* a,
                                              float* saved, float* y) {
#pragma omp simd
    for (int64_t j = 0; j < units; ++j) {
      const float candidate = sum[j + 3 * kLanes];
      const auto g = math::Gru::activate(sum[j + kLanes], sum[j + 2 * kLanes], sum[j], candidate);
      a[j] = g.r;
      a[j + H] = g.z;
      a[j + 2 * H] = g.n;
      saved[j] = candidate;
      y[j] = (1.0f - g.z) * g.n + g.z * h_before[j];
    }
  }
};

/// Returns the size of a panel: the biases of its columns, then [F, kGates] and [H, kGates]
/// vectors.
template <typename Cell>
int64_t panel_floats(const CellSizes& d) {
  return kWidth + (d.F + d.H) * Cell::kGates * kLanes;
}

template <typename Cell>
int64_t packed_floats(const CellSizes& d) {
  return padded(d.H) / kLanes * panel_floats<Cell>(d);
}

/// Fills `to` [K, kGates, kLanes] with the transpose of the rows of w [kGates H, K] that belong to
/// kLanes units from `unit` on.
template <typename Cell>
void pack_weights(int64_t K, int64_t H, int64_t unit, const int* gates, const float* w, float* to) {
  for (int64_t column = 0; column < Cell::kGates; ++column) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float* row = unit + j < H ? w + (gates[column] * H + unit + j) * K : nullptr;
      float* out = to + column * kLanes + j;
      for (int64_t k = 0; k < K; ++k) out[k * Cell::kGates * kLanes] = row == nullptr ? 0 : row[k];
    }
  }
}

template <typename Cell>
void pack(const CellSizes& d, int64_t begin, int64_t end, const CellWeights& w, float* packed) {
  for (int64_t unit = begin; unit < end; unit += kLanes) {
    float* panel = packed + unit / kLanes * panel_floats<Cell>(d);
    for (int64_t column = 0; column < kColumns; ++column) {
      const int input = Cell::kInput[column], recurrent = Cell::kRecurrent[column];
      for (int64_t j = 0; j < kLanes; ++j) {
        float bias = 0;
        if (w.b_ih != nullptr && unit + j < d.H) {
          if (input >= 0) bias += w.b_ih[input * d.H + unit + j];
          if (recurrent >= 0) bias += w.b_hh[recurrent * d.H + unit + j];
        }
        panel[column * kLanes + j] = bias;
      }
    }
    float* weights = panel + kWidth;
    if (d.F > 0) pack_weights<Cell>(d.F, d.H, unit, Cell::kInput, w.w_ih, weights);
    weights += d.F * Cell::kGates * kLanes;
    pack_weights<Cell>(d.H, d.H, unit, Cell::kRecurrent + kColumns - Cell::kGates, w.w_hh, weights);
  }
}

/// c [rows, vectors] += a [rows, K] b [K, vectors], in pieces of b that stay in the L1 cache during
/// a pass over the rows.
void add_product(int64_t rows, int64_t vectors, int64_t K, const float* a, int64_t a_row,
                 const float* b, float* c, int64_t c_row) {
  constexpr int64_t kPiece = 64;
  for (int64_t k = 0; k < K; k += kPiece) {
    multiply_columns<kBlockRows, true>(rows, vectors, smaller(kPiece, K - k), a + k, a_row, 1,
                                       b + k * vectors * kLanes, vectors * kLanes, c, c_row);
  }
}

/// Computes sums [rows, kColumns] vectors, the inputs of the activation for the units of a panel.
template <typename Cell>
void sum_panel(const CellSizes& d, const RecurrentStep& s, const float* panel, int64_t unit,
               const CellForward& p, float* sums) {
  constexpr int64_t kGates = Cell::kGates;
  for (int64_t n = 0; n < s.rows; ++n) {
    for (int64_t j = 0; j < kWidth; ++j) sums[n * kWidth + j] = panel[j];
    if (d.F > 0) continue;
    const float* gates = p.gates + n * s.steps * kGates * d.H + unit;
    for (int64_t column = 0; column < kGates; ++column) {
      add_row(smaller(kLanes, d.H - unit), gates + Cell::kInput[column] * d.H,
              sums + n * kWidth + column * kLanes);
    }
  }
  const float* weights = panel + kWidth;
  add_product(s.rows, kGates, d.F, p.inputs, d.F + d.H, weights, sums, kWidth);
  add_product(s.rows, kGates, d.H, p.inputs + d.F, d.F + d.H, weights + d.F * kGates * kLanes,
              sums + (kColumns - kGates) * kLanes, kWidth);
}

template <typename Cell>
void forward(const CellSizes& d, const RecurrentStep& s, const float* packed,
             const CellForward& p) {
  const int64_t H = d.H, K = d.F + H, panel_sums = s.rows * kWidth;
  for (int64_t n = 0; n < s.rows; ++n) {
    std::memcpy(p.inputs + n * K, p.x + n * s.steps * d.F, bytes_of(d.F));
    if (p.h_before == nullptr) {
      std::memset(p.inputs + n * K + d.F, 0, bytes_of(H));
    } else {
      std::memcpy(p.inputs + n * K + d.F, p.h_before + n * s.steps * H, bytes_of(H));
    }
  }
  for (int64_t unit = 0; unit < H; unit += kLanes) {
    const int64_t panel = unit / kLanes;
    sum_panel<Cell>(d, s, packed + panel * panel_floats<Cell>(d), unit, p,
                    p.sums + panel * panel_sums);
  }
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* sums = p.sums + n * kWidth;
    const int64_t row = n * s.steps * H;
    for (int64_t unit = 0; unit < H; unit += kLanes, sums += panel_sums) {
      const auto activate = [&](int64_t units) __attribute__((always_inline)) {
        Cell::activate(units, H, sums, p.inputs + n * K + d.F + unit, p.c + n * H + unit,
                       p.gates + row * Cell::kGates + unit, p.saved + row + unit, p.y + row + unit);
      };
      if (H - unit >= kLanes) {
        activate(kLanes);
      } else {
        activate(H - unit);
      }
    }
  }
}

void lstm_backward(const CellSizes& d, const RecurrentStep& s, const CellBackward& p) {
  const int64_t H = d.H;
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* a = p.gates + n * s.steps * 4 * H;
    const float* c_row = p.saved + n * s.steps * H;
    const float* before = p.c_before + n * p.before_row;
    float* dh_row = p.dh + n * padded(H);
    float* dc_row = p.dc + n * padded(H);
    float* da = p.da + n * s.steps * 4 * H;
    float* db_row = p.db_rows + n * 4 * H;
    if (n + 1 < s.rows) {
      fetch<false>(4 * H, a + s.steps * 4 * H);
      fetch<false>(H, c_row + s.steps * H);
      fetch<false>(H, before + p.before_row);
      fetch<true>(4 * H, da + s.steps * 4 * H);
    }
    if (p.dy != nullptr) add_row(H, p.dy + n * s.steps * H, dh_row);
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      float cell = dc_row[j];
      const auto g = math::Lstm::backward<float>({a[j], a[j + H], a[j + 2 * H], a[j + 3 * H]},
                                                 c_row[j], before[j], dh_row[j], cell);
      dc_row[j] = cell;
      dh_row[j] = 0;
      da[j] = db_row[j] = g.i;
      p.da_sum[j] += g.i;
      da[j + H] = db_row[j + H] = g.f;
      p.da_sum[j + H] += g.f;
      da[j + 2 * H] = db_row[j + 2 * H] = g.g;
      p.da_sum[j + 2 * H] += g.g;
      da[j + 3 * H] = db_row[j + 3 * H] = g.o;
      p.da_sum[j + 3 * H] += g.o;
    }
  }
}

void gru_backward(const CellSizes& d, const RecurrentStep& s, const CellBackward& p) {
  const int64_t H = d.H;
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* a = p.gates + n * s.steps * 3 * H;
    const float* hn_row = p.saved + n * s.steps * H;
    const float* before = p.h_before + n * p.before_row;
    float* dh_row = p.dh + n * padded(H);
    float* da = p.da + n * s.steps * 3 * H;
    float* db = p.db + n * s.steps * 3 * H;
    float* db_row = p.db_rows + n * 3 * H;
    if (n + 1 < s.rows) {
      fetch<false>(3 * H, a + s.steps * 3 * H);
      fetch<false>(H, hn_row + s.steps * H);
      fetch<false>(H, before + p.before_row);
      fetch<true>(3 * H, da + s.steps * 3 * H);
      fetch<true>(3 * H, db + s.steps * 3 * H);
    }
    if (p.dy != nullptr) add_row(H, p.dy + n * s.steps * H, dh_row);
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      float direct = dh_row[j];
      const auto g =
          math::Gru::backward<float>({a[j], a[j + H], a[j + 2 * H]}, hn_row[j], before[j], direct);
      dh_row[j] = direct;
      da[j] = g.r;
      da[j + H] = g.z;
      da[j + 2 * H] = g.n;
      p.da_sum[j] += g.r;
      p.da_sum[j + H] += g.z;
      p.da_sum[j + 2 * H] += g.n;
      db[j] = db_row[j] = g.r;
      db[j + H] = db_row[j + H] = g.z;
      db[j + 2 * H] = db_row[j + 2 * H] = g.n * a[j];
      p.db_sum[j] += g.r;
      p.db_sum[j + H] += g.z;
      p.db_sum[j + 2 * H] += g.n * a[j];
    }
  }
}

/// Packs panels of kWidth columns; the last panel has the remaining columns.
void pack_back(int64_t K, int64_t H, int64_t begin, int64_t end, const float* w, float* packed) {
  for (int64_t first = 0; first < padded(H); first += kWidth) {
    const int64_t width = smaller(kWidth, padded(H) - first);
    float* panel = packed + first * K;
    const int64_t from = begin > first ? begin - first : 0, to = smaller(width, end - first);
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t j = from; j < to; ++j) {
        panel[k * width + j] = first + j < H ? w[k * H + first + j] : 0;
      }
    }
  }
}

void back_product(int64_t rows, int64_t K, int64_t H, const float* d, const float* packed,
                  float* dh) {
  for (int64_t first = 0; first < padded(H); first += kWidth) {
    const int64_t width = smaller(kWidth, padded(H) - first);
    add_product(rows, width / kLanes, K, d, K, packed + first * K, dh + first, padded(H));
  }
}

template <typename Cell>
constexpr CellLoops cell_loops(void (*backward)(const CellSizes&, const RecurrentStep&,
                                                const CellBackward&)) {
  return {packed_floats<Cell>, pack<Cell>, forward<Cell>, backward};
}

}  // namespace

const RecurrentLoops& TRAINYARD_VARIANT(recurrent_loops)();
const RecurrentLoops& TRAINYARD_VARIANT(recurrent_loops)() {
  static constexpr RecurrentLoops kLoops = {cell_loops<Lstm>(lstm_backward),
                                            cell_loops<Gru>(gru_backward), pack_back, back_product};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
