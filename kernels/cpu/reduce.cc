#include "kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/simd/reduce.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

bool is_extreme(Reduction how) { return how == Reduction::kMin || how == Reduction::kMax; }

float finish(const ReduceParams& p, double value) {
  if (p.how == Reduction::kSum) return static_cast<float>(value * p.factor);
  return static_cast<float>(p.how == Reduction::kL2 ? std::sqrt(value) : value);
}

// Reduces the values of one y, in contiguous runs.
double reduce_runs(const ReduceParams& p, const float* x) {
  const ReduceLoops& loops = reduce_loops();
  const int64_t count = p.reduced.elements();
  double value = is_extreme(p.how) ? static_cast<double>(*x) : 0;
  p.reduced.for_each_run(0, count, [&](const Box<1>::Offsets& at, int64_t n) {
    const float* run = x + at[0];
    switch (p.how) {
      case Reduction::kSum:
        value += loops.sum(n, run);
        break;
      case Reduction::kL2:
        value += loops.squares(n, run);
        break;
      case Reduction::kMin: {
        const auto v = static_cast<double>(loops.min(n, run));
        value = v < value || v != v ? v : value;
        break;
      }
      case Reduction::kMax: {
        const auto v = static_cast<double>(loops.max(n, run));
        value = v > value || v != v ? v : value;
        break;
      }
    }
  });
  return value;
}

// Reduces the values of one y, with any strides.
double reduce_scattered(const ReduceParams& p, const float* x) {
  const int64_t count = p.reduced.elements();
  const int64_t stride = p.reduced.run_stride()[0];
  double value = is_extreme(p.how) ? static_cast<double>(*x) : 0;
  p.reduced.for_each_run(0, count, [&](const Box<1>::Offsets& at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const auto v = static_cast<double>(x[at[0] + i * stride]);
      switch (p.how) {
        case Reduction::kSum:
          value += v;
          break;
        case Reduction::kL2:
          value += v * v;
          break;
        case Reduction::kMin:
          value = v < value || v != v ? v : value;
          break;
        case Reduction::kMax:
          value = v > value || v != v ? v : value;
          break;
      }
    }
  });
  return value;
}

constexpr int64_t kColumnsMax = 256;  // of y in one chunk, which stay in registers and the L1 cache
constexpr int64_t kRowsPerBlock = 64;  // rows that are summed before the sum is added to the total

// Reduces to `columns` adjacent elements of y, whose values are in contiguous rows.
void reduce_rows(const ReduceParams& p, int64_t columns, const float* x, float* y) {
  const ReduceLoops& loops = reduce_loops();
  const int64_t rows = p.reduced.elements();
  float total[kColumnsMax];
  if (is_extreme(p.how)) {
    std::memcpy(total, x, static_cast<size_t>(columns) * sizeof(float));
    const auto row = p.how == Reduction::kMin ? loops.min_row : loops.max_row;
    const int64_t stride = p.reduced.run_stride()[0];
    p.reduced.for_each_run(0, rows, [&](const Box<1>::Offsets& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) row(columns, x + at[0] + i * stride, total);
    });
    std::memcpy(y, total, static_cast<size_t>(columns) * sizeof(float));
    return;
  }
  const auto row = p.how == Reduction::kSum ? loops.add_row : loops.square_row;
  const int64_t stride = p.reduced.run_stride()[0];
  std::fill(total, total + columns, 0.0f);
  for (int64_t begin = 0; begin < rows; begin += kRowsPerBlock) {
    float block[kColumnsMax] = {};
    p.reduced.for_each_run(begin, std::min(rows, begin + kRowsPerBlock),
                           [&](const Box<1>::Offsets& at, int64_t n) {
                             for (int64_t i = 0; i < n; ++i) {
                               row(columns, x + at[0] + i * stride, block);
                             }
                           });
    loops.add_row(columns, block, total);
  }
  for (int64_t c = 0; c < columns; ++c) y[c] = finish(p, static_cast<double>(total[c]));
}

}  // namespace

void reduce(const ReduceParams& p, const float* x, float* y, Run run) {
  check(p, x, y);
  const int64_t outputs = p.kept.elements();
  const int64_t each = p.reduced.elements();
  const Box<2>::Offsets kept_stride = p.kept.run_stride();
  const bool in_runs = p.reduced.run_stride()[0] == 1;
  if (!in_runs && p.kept.rank > 0 && kept_stride[0] == 1 && kept_stride[1] == 1) {
    // Work is divided into chunks of columns, narrower if there are few columns; no sum depends on
    // the chunk size.
    const int64_t width = p.kept.run();
    const int64_t lines = outputs / width;
    int64_t chunk = kColumnsMax;
    while (chunk > 16 && lines * ((width + chunk - 1) / chunk) < run.team.size()) chunk /= 2;
    const int64_t chunks = (width + chunk - 1) / chunk;
    run.team.parallel_for(lines * chunks, grain_of(each * std::min(chunk, width)),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t item = begin; item < end; ++item) {
                              const int64_t first = item % chunks * chunk;
                              const auto at = p.kept.offsets_of(item / chunks * width + first);
                              reduce_rows(p, std::min(chunk, width - first), x + at[0], y + at[1]);
                            }
                          });
    return;
  }
  run.team.parallel_for(outputs, grain_of(each), [&](int64_t begin, int64_t end) {
    p.kept.for_each_run(begin, end, [&](const Box<2>::Offsets& at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const float* from = x + at[0] + i * kept_stride[0];
        y[at[1] + i * kept_stride[1]] =
            finish(p, in_runs ? reduce_runs(p, from) : reduce_scattered(p, from));
      }
    });
  });
}

namespace {

// Computes the gradients of the values that were reduced to one y.
void reduce_grad_of(const ReduceParams& p, const float* x, float y, float dy, float* dx) {
  const ReduceLoops& loops = reduce_loops();
  const int64_t each = p.reduced.elements();
  const int64_t stride = p.reduced.run_stride()[0];
  float slope = p.how == Reduction::kL2 ? (y == 0.0f ? 0.0f : dy / y) : dy;
  if (is_extreme(p.how)) {
    int64_t equal = 0;
    p.reduced.for_each_run(0, each, [&](const Box<1>::Offsets& at, int64_t n) {
      if (stride == 1) {
        equal += loops.count_equal(n, y, x + at[0]);
      } else {
        for (int64_t i = 0; i < n; ++i) equal += x[at[0] + i * stride] == y ? 1 : 0;
      }
    });
    slope /= static_cast<float>(equal);
  }
  p.reduced.for_each_run(0, each, [&](const Box<1>::Offsets& at, int64_t n) {
    if (stride == 1 && p.how == Reduction::kL2) return loops.scale(n, slope, x + at[0], dx + at[0]);
    if (stride == 1) return loops.select(n, slope, y, x + at[0], dx + at[0]);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = at[0] + i * stride;
      dx[k] = p.how == Reduction::kL2 ? slope * x[k] : (x[k] == y ? slope : 0.0f);
    }
  });
}

}  // namespace

void reduce_grad(const ReduceParams& p, const float* x, const float* y, const float* dy, float* dx,
                 Run run) {
  check(p, x, y, dy, dx);
  const Box<2>::Offsets stride = p.kept.run_stride();
  run.team.parallel_for(
      p.kept.elements(), grain_of(p.reduced.elements()), [&](int64_t begin, int64_t end) {
        p.kept.for_each_run(begin, end, [&](const Box<2>::Offsets& at, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            const int64_t x_at = at[0] + i * stride[0];
            const int64_t y_at = at[1] + i * stride[1];
            reduce_grad_of(p, x + x_at, y[y_at], dy[y_at], dx + x_at);
          }
        });
      });
}

}  // namespace trainyard::kernels::cpu
