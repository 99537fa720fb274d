// kernels/cpu/simd/recurrent.h: one step of a recurrent cell, for several rows of the batch; see
// simd.h.
//
// The weights are packed once per run for the products of all steps. A panel contains as many units
// as a vector has lanes, with all gates of these units.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

/// Packed weights are padded to a multiple of kUnitStep units; the weights of the padding are 0.
constexpr int64_t kUnitStep = 16;

/// F is 0 if w_ih x was computed before the steps.
struct CellSizes {
  int64_t F, H;
};

/// The rows of one step inside [N, T, ...]: consecutive rows of the batch are `steps` rows apart.
/// Such rows often map to the same cache sets, so operands that the products read repeatedly are
/// first copied into contiguous memory.
struct RecurrentStep {
  int64_t rows, steps;
};

struct CellWeights {
  const float *w_ih, *w_hh, *b_ih, *b_hh;  // biases may be null; w_ih is not read if F is 0
};

/// h_before and c_before are those of the previous step, null at the first step. If F is 0, gates
/// contains w_ih x on entry.
struct CellForward {
  const float *x, *h_before;
  float *gates, *saved, *y;
  float *inputs, *sums;  // scratch [rows, F + H] and [rows, 4, H padded to kUnitStep]
  float* c;              // lstm: [rows, H], kept from step to step; 0 before the first
};

/// At the first step, h_before and c_before are a row of zeros and before_row is 0; else before_row
/// is H * steps. dh and dc are [rows, H padded to kUnitStep]. backward adds dy, if not null, to dh
/// first, and leaves in dh the part of the gradient that reaches h_before directly, without the
/// product: 0 in lstm.
struct CellBackward {
  const float *gates, *saved, *h_before, *c_before, *dy;
  int64_t before_row;
  float *dh, *dc;
  float *da, *db;          // in [N, T, G H]; the same memory in lstm
  float* db_rows;          // a copy of db, [rows, G H]
  float *da_sum, *db_sum;  // [G H], accumulated; the same memory in lstm
};

struct CellLoops {
  int64_t (*packed_floats)(const CellSizes& d);
  // Packs units [begin, end), which are multiples of kUnitStep.
  void (*pack)(const CellSizes& d, int64_t begin, int64_t end, const CellWeights& w, float* packed);
  void (*forward)(const CellSizes& d, const RecurrentStep& s, const float* packed,
                  const CellForward& p);
  void (*backward)(const CellSizes& d, const RecurrentStep& s, const CellBackward& p);
};

struct RecurrentLoops {
  CellLoops lstm, gru;
  // Packs columns [begin, end) of w [K, H] for back_product; both are multiples of kUnitStep, and H
  // is padded to one.
  void (*pack_back)(int64_t K, int64_t H, int64_t begin, int64_t end, const float* w,
                    float* packed);
  // dh [rows, H padded] += d [rows, K] w
  void (*back_product)(int64_t rows, int64_t K, int64_t H, const float* d, const float* packed,
                       float* dh);
};
const RecurrentLoops& recurrent_loops();

}  // namespace trainyard::kernels::cpu
