// Adafactor makes three passes over the gradient: for the squares of rows and columns, for the size
// of the update, and for the update. Rows are divided into blocks that depend only on the shape, so
// that results are bit-identical for any team size.
#include <algorithm>

#include "kernels/cpu/onednn.h"  // WorkspaceLayout
#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"
#include "kernels/optimizer.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kBlockElements = 16384;
constexpr int64_t kBlocksMax = 64;  // per matrix; bounds the memory for column sums

// A vector is treated as one matrix of one row, except that its variance is not factored.
struct Blocks {
  int64_t matrices, rows, columns;
  int64_t block_rows, per_matrix;
  explicit Blocks(const AdafactorParams& s)
      : matrices(s.rows == 0 ? 1 : s.batch),
        rows(std::max<int64_t>(s.rows, 1)),
        columns(s.columns) {
    block_rows = std::max(std::max<int64_t>(kBlockElements / columns, 1),
                          (rows + kBlocksMax - 1) / kBlocksMax);
    per_matrix = (rows + block_rows - 1) / block_rows;
  }
  int64_t count() const { return matrices * per_matrix; }
  int64_t matrix(int64_t block) const { return block / per_matrix; }
  int64_t first_row(int64_t block) const { return block % per_matrix * block_rows; }
  int64_t end_row(int64_t block) const { return std::min(rows, first_row(block) + block_rows); }
  int64_t elements() const { return matrices * rows * columns; }
};

struct Workspace {
  WorkspaceLayout layout;
  int64_t columns, sums, factors;
  explicit Workspace(const Blocks& b) {
    const auto bytes = [](int64_t doubles) {
      return doubles * static_cast<int64_t>(sizeof(double));
    };
    columns = layout.add(bytes(b.count() * b.columns));
    sums = layout.add(bytes(b.count()));
    factors = layout.add(b.matrices * static_cast<int64_t>(sizeof(float)));
  }
};

double add_up(int64_t count, const double* terms) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += terms[i];
  return sum;
}

class Adafactor {
 public:
  Adafactor(const AdafactorParams& s, const AdafactorOperands<float>& o, const Run& run)
      : s_(s), b_(s), g_(o.g), row_(o.row), column_(o.column), team_(run.team) {
    const Workspace w(b_);
    void* const workspace = workspace_of<void>("adafactor", run);
    columns_ = static_cast<double*>(at_offset(workspace, w.columns));
    sums_ = static_cast<double*>(at_offset(workspace, w.sums));
    factors_ = static_cast<float*>(at_offset(workspace, w.factors));
  }

  /// Calls f(block) for every block, split over the team.
  template <typename F>
  void for_blocks(const F& f) {
    team_.parallel_for(b_.count(), grain_of(b_.block_rows * b_.columns),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t block = begin; block < end; ++block) f(block);
                       });
  }
  template <typename F>
  void for_rows(int64_t block, const F& f) const {
    for (int64_t r = b_.first_row(block); r < b_.end_row(block); ++r) {
      const int64_t index = b_.matrix(block) * b_.rows + r;  // index of the row among all matrices
      f(index, index * b_.columns);
    }
  }
  double sum_of_blocks() const { return add_up(b_.count(), sums_); }

  double parameter_squares(const float* p) {
    for_blocks([&](int64_t block) {
      sums_[block] = 0;
      for_rows(block, [&](int64_t, int64_t at) {
        sums_[block] += update_loops().square_sum(b_.columns, p + at);
      });
    });
    return sum_of_blocks();
  }

  /// Updates row averages in place; the column sums of the blocks are added up afterwards.
  void learn(double share) {
    for_blocks([&](int64_t block) {
      double* sums = columns_ + block * b_.columns;
      std::fill(sums, sums + b_.columns, 0.0);
      for_rows(block, [&](int64_t index, int64_t at) {
        const double squares = update_loops().row_squares(b_.columns, g_ + at, sums);
        if (row_ == nullptr) return;
        const auto mean = static_cast<float>(squares / static_cast<double>(b_.columns));
        row_[index] += static_cast<float>(share) * (mean - row_[index]);
      });
    });
    for (int64_t m = 0; m < b_.matrices; ++m) learn_columns(m, share);
  }

  /// Returns the factor of a row: the variance of its element c is column[c] * factor.
  float factor(int64_t block, int64_t index) const {
    return row_ == nullptr ? 1.0f : row_[index] * factors_[b_.matrix(block)];
  }
  const float* columns_of(int64_t block) const { return column_ + b_.matrix(block) * b_.columns; }

  double update_squares(float floor) {
    for_blocks([&](int64_t block) {
      sums_[block] = 0;
      for_rows(block, [&](int64_t index, int64_t at) {
        sums_[block] += update_loops().update_squares(b_.columns, g_ + at, columns_of(block),
                                                      factor(block, index), floor);
      });
    });
    return sum_of_blocks();
  }

  void apply(float floor, float kept, float rate, float* p) {
    for_blocks([&](int64_t block) {
      for_rows(block, [&](int64_t index, int64_t at) {
        update_loops().factored_update(b_.columns, g_ + at, columns_of(block), factor(block, index),
                                       floor, kept, rate, p + at);
      });
    });
  }

 private:
  void learn_columns(int64_t m, double share) {
    const double* sums = columns_ + m * b_.per_matrix * b_.columns;
    float* column = column_ + m * b_.columns;
    team_.parallel_for(b_.columns, grain_of(b_.per_matrix), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < b_.per_matrix; ++k) sum += sums[k * b_.columns + c];
        const auto mean = static_cast<float>(sum / static_cast<double>(b_.rows));
        column[c] += static_cast<float>(share) * (mean - column[c]);
      }
    });
    if (row_ == nullptr) return;
    double mean = 0;
    for (int64_t r = 0; r < b_.rows; ++r) mean += static_cast<double>(row_[m * b_.rows + r]);
    mean /= static_cast<double>(b_.rows);
    factors_[m] = static_cast<float>(1 / (mean < s_.epsilon ? s_.epsilon : mean));
  }

  const AdafactorParams& s_;
  const Blocks b_;
  const float* g_;
  float* row_;
  float* column_;
  Team& team_;
  double* columns_;
  double* sums_;
  float* factors_;
};

}  // namespace

int64_t adafactor_workspace_bytes(const AdafactorParams& s) {
  return Workspace(Blocks(s)).layout.size_bytes();
}

void adafactor(const AdafactorParams& s, const AdafactorOperands<float>& o, Run run) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  Adafactor a(s, o, run);
  const auto c =
      math::adafactor_constants(*o.learning_rate * s.rate_factor, s.beta2_decay, s.scale_min,
                                s.weight_decay, *o.step, a.parameter_squares(o.p), s.count());
  a.learn(c.new_share);
  const auto floor = static_cast<float>(s.epsilon * s.epsilon);
  const double rate =
      math::adafactor_step(c.step, a.update_squares(floor), s.count(), s.clip_threshold);
  a.apply(floor, static_cast<float>(c.kept_share), static_cast<float>(rate), o.p);
}

}  // namespace trainyard::kernels::cpu
