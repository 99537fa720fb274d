#include <cmath>

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/team.h"
#include "kernels/mse.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels::cpu {
namespace {

// Loss terms of rows are stored and added by one thread in their order, whatever the team.
double add_up(int64_t count, const double* terms) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += terms[i];
  return total;
}

constexpr int64_t kMseBlock = 4096;  // elements whose squares are added before blocks are

}  // namespace

int64_t softmax_xent_workspace_bytes(const SoftmaxXentDims& d) {
  return d.rows * static_cast<int64_t>(sizeof(double));
}

void softmax_xent_forward(const SoftmaxXentDims& d, const float* z, const int32_t* label,
                          float* loss, float* p, void* workspace, Team& team) {
  double* terms = static_cast<double*>(workspace);
  team.parallel_for(d.rows, grain_of(16 * d.classes), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* z_row = z + n * d.classes;
      float* p_row = p + n * d.classes;
      const float z_label = z_row[label[n]];  // before p overwrites it
      float sum = 0;
      const float max = row_loops().softmax(d.classes, z_row, p_row, &sum);
      terms[n] = static_cast<double>(std::log(sum) - (z_label - max));
    }
  });
  *loss = static_cast<float>(add_up(d.rows, terms) / static_cast<double>(d.rows));
}

void softmax_xent_backward(const SoftmaxXentDims& d, const float* p, const int32_t* label,
                           const float* dloss, float* dz, Team& team) {
  const float scale = *dloss / static_cast<float>(d.rows);
  team.parallel_for(d.rows, grain_of(d.classes), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* p_row = p + n * d.classes;
      float* dz_row = dz + n * d.classes;
      const float p_label = p_row[label[n]];  // dz may be p
      row_loops().scale(d.classes, scale, p_row, dz_row);
      dz_row[label[n]] = scale * (p_label - 1.0f);
    }
  });
}

int64_t mse_workspace_bytes(int64_t count) {
  return (count + kMseBlock - 1) / kMseBlock * static_cast<int64_t>(sizeof(double));
}

void mse_forward(int64_t count, const float* y, const float* t, float* loss, void* workspace,
                 Team& team) {
  double* terms = static_cast<double*>(workspace);
  const int64_t blocks = (count + kMseBlock - 1) / kMseBlock;
  team.parallel_for(blocks, kElementsPerThread / kMseBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min(count, (block + 1) * kMseBlock);
      double sum = 0;
      for (int64_t i = block * kMseBlock; i < last; ++i) {
        const double error = static_cast<double>(y[i] - t[i]);
        sum += error * error;
      }
      terms[block] = sum;
    }
  });
  *loss = static_cast<float>(add_up(blocks, terms) / static_cast<double>(count));
}

void mse_backward(int64_t count, const float* y, const float* t, const float* dloss, float* dy,
                  Team& team) {
  const float scale = *dloss * (2.0f / static_cast<float>(count));
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dy[i] = scale * (y[i] - t[i]);
  });
}

}  // namespace trainyard::kernels::cpu
