// Adafactor in three passes over the gradient, as on the CPU: for the squares of rows and columns,
// for the size of the update, and for the update. The parameter is read twice and written once.
//
// Access   g is read four times, p twice, and p is written once: 28 B a parameter. Adjacent threads
//          read adjacent elements of a row, for row sums and column sums, so that whole cache lines
//          are read.
// Sums     use reduction.h; sums over the whole tensor are in double.
// Time     bytes / 4.8 TB/s on an H200: 100 M parameters in 0.58 ms. For small tensors the time is
//          that of six to ten launches.
#include "kernels/cuda/reduction.h"
#include "kernels/cuda/walk.h"
#include "kernels/optimizer.h"

namespace trainyard::kernels::cuda {
namespace {

struct Added {
  TRAINYARD_DEVICE float zero() const { return 0; }
  TRAINYARD_DEVICE void merge(float& acc, float other) const { acc += other; }
};
struct AddedInDouble {
  TRAINYARD_DEVICE double zero() const { return 0; }
  TRAINYARD_DEVICE void merge(double& acc, double other) const { acc += other; }
};

/// The parameters of the step, which every thread reads from device memory.
struct Rate {
  AdafactorParams s;
  const float* learning_rate;
  const int64_t* step;
  TRAINYARD_DEVICE math::AdafactorConstants constants(double square_sum) const {
    return math::adafactor_constants(*learning_rate * s.rate_factor, s.beta2_decay, s.scale_min,
                                     s.weight_decay, *step, square_sum, s.count());
  }
  TRAINYARD_DEVICE bool is_skipped() const { return math::is_skipped(*learning_rate); }
  /// Updates the running average `average` with a new mean of squares.
  TRAINYARD_DEVICE void learn(float& average, float mean) const {
    if (is_skipped()) return;
    average += static_cast<float>(constants(0).new_share) * (mean - average);
  }
};

struct ParameterSquares : AddedInDouble {
  using Acc = double;
  const float* p;
  double* sum;
  TRAINYARD_DEVICE void add(double& acc, int64_t, int64_t begin, int64_t end, int64_t step) const {
    for (int64_t i = begin; i < end; i += step) {
      acc += static_cast<double>(p[i]) * static_cast<double>(p[i]);
    }
  }
  TRAINYARD_DEVICE void finish(int64_t, double acc) const { *sum = acc; }
};

struct RowSquares : Added {
  using Acc = float;
  Rate rate;
  In g;
  float* row;
  TRAINYARD_DEVICE void add(float& acc, int64_t r, int64_t begin, int64_t end, int64_t step) const {
    for (int64_t c = begin; c < end; c += step) {
      const float v = g[r * rate.s.columns + c];
      acc += v * v;
    }
  }
  TRAINYARD_DEVICE void finish(int64_t r, float acc) const {
    rate.learn(row[r], acc / static_cast<float>(rate.s.columns));
  }
};

struct ColumnSquares : Added {
  using Acc = float;
  Rate rate;
  Divisor columns;
  In g;
  float* column;
  TRAINYARD_DEVICE void add(float& acc, int64_t at, int64_t begin, int64_t end,
                            int64_t step) const {
    const int64_t k = columns.quotient(at), c = at - k * columns.value;
    const In matrix = g + k * rate.s.rows * columns.value;
    for (int64_t r = begin; r < end; r += step) {
      const float v = matrix[r * columns.value + c];
      acc += v * v;
    }
  }
  TRAINYARD_DEVICE void finish(int64_t at, float acc) const {
    rate.learn(column[at], acc / static_cast<float>(rate.s.rows));
  }
};

struct RowMeans : Added {
  using Acc = float;
  int64_t rows;
  float epsilon;
  const float* row;
  float* mean;
  TRAINYARD_DEVICE void add(float& acc, int64_t k, int64_t begin, int64_t end, int64_t step) const {
    for (int64_t r = begin; r < end; r += step) acc += row[k * rows + r];
  }
  TRAINYARD_DEVICE void finish(int64_t k, float acc) const {
    const float m = acc / static_cast<float>(rows);
    mean[k] = m < epsilon ? epsilon : m;
  }
};

TRAINYARD_KERNEL void learn_vector(Rate rate, In g, float* column) {
  if (rate.is_skipped()) return;
  TRAINYARD_SHARED(float, share);
  if (threadIdx.x == 0) share = static_cast<float>(rate.constants(0).new_share);
  __syncthreads();
  for (int64_t i = thread_index(); i < rate.s.columns; i += thread_count()) {
    column[i] += share * (g[i] * g[i] - column[i]);
  }
}

/// Computes the update of an element: g divided by the square root of its variance. In a matrix the
/// variance is the product of its row's and its column's average, divided by the mean of the row
/// averages.
struct Updates {
  bool is_vector;
  Divisor columns, elements;  // divide by columns, and by elements of a matrix
  float floor;
  In g;
  const float *row, *column, *mean;
  TRAINYARD_DEVICE float operator[](int64_t i) const {
    float variance;
    if (is_vector) {
      variance = column[i];
    } else {
      const int64_t r = columns.quotient(i), k = elements.quotient(i);
      const int64_t c = i - r * columns.value;
      variance = row[r] * column[k * columns.value + c] / mean[k];
    }
    return math::adafactor_update(g[i], variance, floor);
  }
};

struct UpdateSquares : AddedInDouble {
  using Acc = double;
  Updates updates;
  double* sum;
  TRAINYARD_DEVICE void add(double& acc, int64_t, int64_t begin, int64_t end, int64_t step) const {
    for (int64_t i = begin; i < end; i += step) {
      const auto u = static_cast<double>(updates[i]);
      acc += u * u;
    }
  }
  TRAINYARD_DEVICE void finish(int64_t, double acc) const { *sum = acc; }
};

TRAINYARD_KERNEL void apply(Rate rate, Updates updates, const double* sums, float* p) {
  if (rate.is_skipped()) return;
  TRAINYARD_SHARED(float, constants, [2]);
  const int64_t count = rate.s.count();
  if (threadIdx.x == 0) {
    const math::AdafactorConstants c = rate.constants(sums[0]);
    constants[0] = static_cast<float>(c.kept_share);
    constants[1] =
        static_cast<float>(math::adafactor_step(c.step, sums[1], count, rate.s.clip_threshold));
  }
  __syncthreads();
  const float kept = constants[0], step = constants[1];
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    p[i] = p[i] * kept - step * updates[i];
  }
}

struct Plans {
  ReductionPlan whole, rows, columns, means;
  explicit Plans(const AdafactorParams& s) : whole(plan_reduction(1, s.count(), Adjacent::kTerms)) {
    if (s.rows == 0) return;
    rows = plan_reduction(s.batch * s.rows, s.columns, Adjacent::kTerms);
    columns = plan_reduction(s.batch * s.columns, s.rows, Adjacent::kResults);
    means = plan_reduction(s.batch, s.rows, Adjacent::kTerms);
  }
};

/// The workspace begins with two sums and one mean of row averages per matrix; the workspace of the
/// reductions follows.
constexpr int64_t kSumsBytes = 16;
int64_t means_bytes(const AdafactorParams& s) {
  return (s.batch * static_cast<int64_t>(sizeof(float)) + 15) / 16 * 16;
}

}  // namespace

int64_t adafactor_workspace_bytes(const AdafactorParams& s) {
  const Plans plans(s);
  int64_t bytes = reduction_workspace_bytes<ParameterSquares>(plans.whole);
  if (s.rows > 0) {
    bytes = std::max({bytes, reduction_workspace_bytes<RowSquares>(plans.rows),
                      reduction_workspace_bytes<ColumnSquares>(plans.columns),
                      reduction_workspace_bytes<RowMeans>(plans.means)});
  }
  return kSumsBytes + means_bytes(s) + bytes;
}

void adafactor(const AdafactorParams& s, const AdafactorOperands<Views>& o, Run run) {
  check(s, o);
  const Plans plans(s);
  auto* bytes = workspace_of<char>("adafactor", run);
  auto* sums = reinterpret_cast<double*>(bytes);
  auto* mean = reinterpret_cast<float*>(bytes + kSumsBytes);
  void* spare = bytes + kSumsBytes + means_bytes(s);
  const Rate rate{s, o.learning_rate, o.step};
  reduce(plans.whole, ParameterSquares{{}, o.p, sums}, spare, run.stream);
  if (s.rows == 0) {
    launch(grid_for(s.columns), run.stream, learn_vector, rate, o.g, o.column);
  } else {
    reduce(plans.rows, RowSquares{{}, rate, o.g, o.row}, spare, run.stream);
    reduce(plans.columns, ColumnSquares{{}, rate, Divisor(s.columns), o.g, o.column}, spare,
           run.stream);
    reduce(plans.means, RowMeans{{}, s.rows, static_cast<float>(s.epsilon), o.row, mean}, spare,
           run.stream);
  }
  const Updates updates{s.rows == 0,
                        Divisor(s.columns),
                        Divisor(std::max<int64_t>(s.rows, 1) * s.columns),
                        static_cast<float>(s.epsilon * s.epsilon),
                        o.g,
                        o.row,
                        o.column,
                        mean};
  reduce(plans.whole, UpdateSquares{{}, updates, sums + 1}, spare, run.stream);
  launch(grid_for(s.count()), run.stream, apply, rate, updates, sums, o.p);
}

}  // namespace trainyard::kernels::cuda
