// kernels/cpu/simd/recurrent.h: one step of a recurrent cell over rows of a batch.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

/// Rows of one step inside [N, T, ...]: neighbours of a row lie `steps` rows apart. `*_before` is
/// the step before, or a row of zeros with stride 0.
struct RecurrentStep {
  int64_t rows, H, steps;
  int64_t stride_before;  // of the rows of h_before and saved_before, in elements
};

struct RecurrentLoops {
  // gates in: w_ih x + b_ih, out: activated; recurrent [rows, G H]: w_hh h + b_hh.
  void (*lstm_forward)(const RecurrentStep& s, const float* recurrent, const float* c_before,
                       float* gates, float* c, float* y);
  void (*gru_forward)(const RecurrentStep& s, const float* recurrent, const float* h_before,
                      float* gates, float* hn, float* y);
  // dh, dc [rows, H]: dh gets dy (or null) added first. lstm writes da and leaves dh to the
  // recurrent product; gru writes da and db, and leaves in dh its direct part.
  void (*lstm_backward)(const RecurrentStep& s, const float* gates, const float* c,
                        const float* c_before, const float* dy, float* dh, float* dc, float* da);
  void (*gru_backward)(const RecurrentStep& s, const float* gates, const float* hn,
                       const float* h_before, const float* dy, float* dh, float* da, float* db);
};
const RecurrentLoops& recurrent_loops();

}  // namespace trainyard::kernels::cpu
