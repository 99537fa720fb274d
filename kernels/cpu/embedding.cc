#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

void copy_row(int64_t count, const float* x, float* y) {
  std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
}
void clear_row(int64_t count, float* y) {
  std::memset(y, 0, static_cast<size_t>(count) * sizeof(float));
}

bool counts(const SequencePoolDims& d, const int32_t* token, int64_t i) {
  return token == nullptr || token[i] != d.padding;
}

// Returns 1 / (the number of positions of sequence n that are averaged); 0 if there is none.
float pool_weight(const SequencePoolDims& d, const int32_t* token, int64_t n) {
  int64_t count = 0;
  for (int64_t t = 0; t < d.T; ++t) count += counts(d, token, n * d.T + t) ? 1 : 0;
  return count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
}

// Columns are split over threads in multiples of this, a whole cache line.
constexpr int64_t kColumnStep = 16;

template <typename F>
void by_columns(int64_t columns, int64_t rows, Team& team, const F& f) {
  const int64_t blocks = (columns + kColumnStep - 1) / kColumnStep;
  team.parallel_for(blocks, grain_of(rows * kColumnStep), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kColumnStep;
    f(first, std::min(columns, end * kColumnStep) - first);
  });
}

}  // namespace

void to_index(int64_t count, const float* x, int32_t* index, Run run) {
  check_to_index(count, x, index);
  run.team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) index[i] = static_cast<int32_t>(x[i]);
  });
}

void gather(const GatherDims& d, const float* table, const int32_t* index, float* y, Run run) {
  check_gather(d, table, index, y);
  run.team.parallel_for(d.count, grain_of(d.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = d.row(index[i]);
      if (row < 0) {
        clear_row(d.width, y + i * d.width);
      } else {
        copy_row(d.width, table + row * d.width, y + i * d.width);
      }
    }
  });
}

void gather_backward(const GatherDims& d, const int32_t* index, const float* dy, float* dtable,
                     Run run) {
  check_gather(d, dy, index, dtable);
  run.team.parallel_for(d.rows * d.width, kElementsPerThread, [&](int64_t begin, int64_t end) {
    clear_row(end - begin, dtable + begin);
  });
  by_columns(d.width, d.count, run.team, [&](int64_t first, int64_t width) {
    for (int64_t i = 0; i < d.count; ++i) {
      const int64_t row = d.row(index[i]);
      if (row < 0) continue;
      row_loops().accumulate(width, dy + i * d.width + first, dtable + row * d.width + first);
    }
  });
}

void add_positions(const PositionDims& d, const float* x, const float* position,
                   const float* prefix, float* y, Run run) {
  check_positions(d, x, position, prefix, y);
  const int64_t length = d.prefix + d.T;
  run.team.parallel_for(d.N * length, grain_of(d.D), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / length, t = i % length;
      const float* in = t < d.prefix ? prefix + t * d.D : x + (n * d.T + t - d.prefix) * d.D;
      elementwise_loops().add(d.D, in, position + t * d.D, y + i * d.D);
    }
  });
}

// The positions are split over the team, since they are independent of each other.
void add_positions_backward(const PositionDims& d, const float* dy, float* dx, float* dposition,
                            float* dprefix, Run run) {
  check_positions_grad(d, dy);
  const int64_t length = d.prefix + d.T;
  run.team.parallel_for(length, grain_of(d.N * d.D), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const bool in_prefix = t < d.prefix;
      float* sum = dposition != nullptr ? dposition + t * d.D : nullptr;
      if (sum == nullptr && in_prefix && dprefix != nullptr) sum = dprefix + t * d.D;
      if (sum != nullptr) clear_row(d.D, sum);
      for (int64_t n = 0; n < d.N; ++n) {
        const float* row = dy + (n * length + t) * d.D;
        if (sum != nullptr) row_loops().accumulate(d.D, row, sum);
        if (dx != nullptr && !in_prefix) copy_row(d.D, row, dx + (n * d.T + t - d.prefix) * d.D);
      }
      if (in_prefix && dposition != nullptr && dprefix != nullptr) {
        copy_row(d.D, sum, dprefix + t * d.D);
      }
    }
  });
}

void sequence_pool(const SequencePoolDims& d, const float* x, const int32_t* token, float* y,
                   Run run) {
  check_sequence_pool(d, x, y);
  run.team.parallel_for(d.N, grain_of(d.mode == PoolMode::kMean ? d.T * d.D : d.D),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t n = begin; n < end; ++n) {
                            const float* rows = x + n * d.T * d.D;
                            float* out = y + n * d.D;
                            if (d.mode != PoolMode::kMean) {
                              const int64_t t = d.position(token, n);
                              if (t < 0) {
                                clear_row(d.D, out);
                              } else {
                                copy_row(d.D, rows + t * d.D, out);
                              }
                              continue;
                            }
                            clear_row(d.D, out);
                            for (int64_t t = 0; t < d.T; ++t) {
                              if (counts(d, token, n * d.T + t))
                                row_loops().accumulate(d.D, rows + t * d.D, out);
                            }
                            row_loops().scale(d.D, pool_weight(d, token, n), out, out);
                          }
                        });
}

void sequence_pool_backward(const SequencePoolDims& d, const int32_t* token, const float* dy,
                            float* dx, Run run) {
  check_sequence_pool(d, dy, dx);
  run.team.parallel_for(d.N, grain_of(d.T * d.D), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const bool mean = d.mode == PoolMode::kMean;
      const float weight = mean ? pool_weight(d, token, n) : 1.0f;
      const int64_t only = mean ? -1 : d.position(token, n);
      for (int64_t t = 0; t < d.T; ++t) {
        float* out = dx + (n * d.T + t) * d.D;
        if (mean ? counts(d, token, n * d.T + t) : t == only) {
          row_loops().scale(d.D, weight, dy + n * d.D, out);
        } else {
          clear_row(d.D, out);
        }
      }
    }
  });
}

void sequence_max(const SequenceMaxDims& d, const float* x, const int32_t* token, float* y,
                  Run run) {
  check_sequence_max(d, x, y);
  run.team.parallel_for(d.N, grain_of(d.T * d.D), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* rows = x + n * d.T * d.D;
      const int64_t counted = d.counted(token == nullptr ? nullptr : token + n * d.S);
      float* out = y + n * d.D;
      copy_row(d.D, rows, out);
      for (int64_t t = 1; t < counted; ++t) {
        const float* row = rows + t * d.D;
        for (int64_t c = 0; c < d.D; ++c) {
          out[c] = row[c] > out[c] || row[c] != row[c] ? row[c] : out[c];
        }
      }
    }
  });
}

// For one line of columns at a time, finds the positions of the maxima and then writes all rows.
void sequence_max_backward(const SequenceMaxDims& d, const float* x, const int32_t* token,
                           const float* dy, float* dx, Run run) {
  check_sequence_max(d, x, dx);
  const int64_t lines = (d.D + kColumnStep - 1) / kColumnStep;
  run.team.parallel_for(
      d.N * lines, grain_of(2 * d.T * kColumnStep), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t n = i / lines, first = i % lines * kColumnStep;
          const int64_t width = std::min(d.D - first, kColumnStep), from = n * d.T * d.D + first;
          const int64_t counted = d.counted(token == nullptr ? nullptr : token + n * d.S);
          float best[kColumnStep];
          int64_t at[kColumnStep] = {};
          copy_row(width, x + from, best);
          for (int64_t t = 1; t < counted; ++t) {
            const float* row = x + from + t * d.D;
            for (int64_t c = 0; c < width; ++c) {
              const bool is_greater = row[c] > best[c] || row[c] != row[c];
              best[c] = is_greater ? row[c] : best[c];
              at[c] = is_greater ? t : at[c];
            }
          }
          for (int64_t t = 0; t < d.T; ++t) {
            float* row = dx + from + t * d.D;
            for (int64_t c = 0; c < width; ++c)
              row[c] = at[c] == t ? dy[n * d.D + first + c] : 0.0f;
          }
        }
      });
}

void reverse_sequence(const ReverseDims& d, const float* x, const int32_t* length, float* y,
                      Run run) {
  check_reverse_sequence(d, x, length, y);
  run.team.parallel_for(d.N * d.T, grain_of(d.D), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / d.T;
      copy_row(d.D, x + (n * d.T + d.source(length, n, i % d.T)) * d.D, y + i * d.D);
    }
  });
}

void sequence_lengths(const SequenceLengthDims& d, const int32_t* token, int32_t* length, Run run) {
  check_sequence_lengths(d, token, length);
  run.team.parallel_for(d.N, grain_of(d.T), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) length[n] = d.length(token, n);
  });
}

}  // namespace trainyard::kernels::cpu
