// kernels/rotary.h: rotary position embeddings: pairs of numbers of each head are rotated by angles
// that are proportional to the token's position.
//
//   rotary_tables   cos[r,j] = factor cos(a),  sin[r,j] = factor sin(a),  a = position[r] * f[j]
//   rotary          (y1, y2) = (c x1 - s x2, s x1 + c x2)   for each pair (x1, x2) of a head
//
// The first R of the D numbers of a head are rotated, the others copied. Pair j of a head consists
// of its numbers j and R/2 + j, or, if interleaved, 2j and 2j + 1. The inverse, with -s in place of
// s, is the gradient.
//
// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
//
/// Shapes    x, y [rows, H, D]; cos, sin [table rows, R/2]; positions [rows], optional: the table's
///           row of each row, in [0, table rows). Without them row r reads the table's row r modulo
///           the table rows. For the tables: positions [rows]; without them row r has position r.
/// Writes    all of y, or of cos and sin.
/// Aliasing  y may be x.
/// Numerics  F32 angles are rounded to F32 before the cosine, as in transformers.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// The limit of R/2, so that a launch can pass all frequencies by value.
inline constexpr int64_t kRotaryPairsMax = 256;

struct RotaryTableParams {
  int64_t rows;                     // >= 1
  std::vector<double> frequencies;  // R/2 numbers
  double factor = 1;
};

struct RotaryDims {
  int64_t rows, H, D;  // all >= 1
  int64_t pairs;       // R/2, in [1, D/2]
  int64_t table_rows;
  bool interleaved = false;
  bool inverse = false;

  /// Places of the numbers of pair 0 in a head, and from one pair to the next.
  constexpr int64_t second() const { return interleaved ? 1 : pairs; }
  constexpr int64_t step() const { return interleaved ? 2 : 1; }
};

template <typename T>
struct RotaryOperands {
  InOf<T> x;                           // [rows, H, D]
  const NumberOf<T>*cos, *sin;         // [table rows, pairs]
  const int32_t* positions = nullptr;  // [rows], optional
  OutOf<T> y;                          // [rows, H, D]
};

template <typename Y>
void check_rotary_tables(const RotaryTableParams& p, const Y* cos, const Y* sin) {
  Contract("rotary_tables")
      .size("rows", p.rows)
      .holds(!p.frequencies.empty() && std::ssize(p.frequencies) <= kRotaryPairsMax, "frequencies",
             "are not 1 to 256")
      .given("cos", cos)
      .given("sin", sin);
}
template <typename T>
void check(const RotaryDims& d, const RotaryOperands<T>& o) {
  Contract("rotary")
      .size("values", d.rows * d.H * d.D)
      .size("pairs", d.pairs)
      .holds(2 * d.pairs <= d.D, "pairs", "are more than half of a head")
      .size("table_rows", d.table_rows)
      .given("x", o.x)
      .given("cos", o.cos)
      .given("sin", o.sin)
      .given("y", o.y);
}

namespace reference {  // T is float or double
template <typename T>
void rotary_tables(const RotaryTableParams& p, const int32_t* positions, T* cos, T* sin,
                   Run<T> run = {});
template <typename T>
void rotary(const RotaryDims& d, const RotaryOperands<T>& o, Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void rotary_tables(const RotaryTableParams& p, const int32_t* positions, float* cos, float* sin,
                   Run run);
void rotary(const RotaryDims& d, const RotaryOperands<float>& o, Run run);
}  // namespace cpu

/// Launches: 1 each.
namespace cuda {
void rotary_tables(const RotaryTableParams& p, const int32_t* positions, float* cos, float* sin,
                   Run run);
void rotary(const RotaryDims& d, const RotaryOperands<Views>& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
