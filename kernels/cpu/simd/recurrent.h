// kernels/cpu/simd/recurrent.h: one step of a recurrent cell over rows of a batch.
//
// The weights are packed once per run for the products of all steps: in panels of as many units as
// a vector has lanes, with all gates of a unit in one panel.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

/// Packed weights are made for whole units of kUnitStep; those that H does not have are 0.
constexpr int64_t kUnitStep = 16;

/// F is 0 where w_ih x was computed ahead of the steps.
struct CellSizes {
  int64_t F, H;
};

/// Rows of one step inside [N, T, ...]: neighbours lie `steps` rows apart. Such rows tend to fall
/// on the same lines of a cache, so that what products read again and again is copied side by side.
struct RecurrentStep {
  int64_t rows, steps;
};

struct CellWeights {
  const float *w_ih, *w_hh, *b_ih, *b_hh;  // biases or null; w_ih is not read if F is 0
};

/// h_before and c_before are those of the step before, null at the first. If F is 0, gates holds
/// w_ih x before.
struct CellForward {
  const float *x, *h_before;
  float *gates, *saved, *y;
  float *inputs, *sums;  // scratch [rows, F + H] and [rows, 4, H padded to kUnitStep]
  float* c;              // of lstm [rows, H], from step to step; 0 before the first
};

/// Before the first step, h_before and c_before are a row of zeros with before_row 0, else H *
/// steps. dh, dc [rows, H padded to kUnitStep]: dh gets dy (or null) added first, and keeps what
/// goes to h_before directly, past the product: nothing in lstm.
struct CellBackward {
  const float *gates, *saved, *h_before, *c_before, *dy;
  int64_t before_row;
  float *dh, *dc;
  float *da, *db;          // in [N, T, G H]; those of lstm are one
  float* db_rows;          // the same as db, [rows, G H]
  float *da_sum, *db_sum;  // [G H], accumulated; those of lstm are one
};

struct CellLoops {
  int64_t (*packed_floats)(const CellSizes& d);
  // Packs the units [begin, end), multiples of kUnitStep.
  void (*pack)(const CellSizes& d, int64_t begin, int64_t end, const CellWeights& w, float* packed);
  void (*forward)(const CellSizes& d, const RecurrentStep& s, const float* packed,
                  const CellForward& p);
  void (*backward)(const CellSizes& d, const RecurrentStep& s, const CellBackward& p);
};

struct RecurrentLoops {
  CellLoops lstm, gru;
  // Packs w [K, H] for back_product, the columns [begin, end) as above; H padded to kUnitStep.
  void (*pack_back)(int64_t K, int64_t H, int64_t begin, int64_t end, const float* w,
                    float* packed);
  // dh [rows, H padded] += d [rows, K] w
  void (*back_product)(int64_t rows, int64_t K, int64_t H, const float* d, const float* packed,
                       float* dh);
};
const RecurrentLoops& recurrent_loops();

}  // namespace trainyard::kernels::cpu
