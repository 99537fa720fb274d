// Access   draws: one block processes them in parts of 256. A part reads and writes one mark of 4 B
//          for each draw; the marks, 4 B a class, are cleared first. Rows of scores: a warp or a
//          block each, as in split_xent.cu: z is read twice, the second time from a cache if the
//          rows in progress fit, and p is written; backward reads p and writes dz. Rows of tables:
//          whole cache lines.
// Time     bytes / 4.8 TB/s on an H200: 1 M classes are cleared in 1 us; 8192 different classes are
//          drawn in about 60 parts of about 3 us; scores [1024, 9216] take 24 us forward and 16 us
//          backward.
#include "kernels/sampled_xent.h"

#include "kernels/cuda/class_target.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/running_softmax.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int kPart = kBlockThreads;

TRAINYARD_KERNEL void clear_marks(int64_t classes, int32_t* marks) {
  for (int64_t i = thread_index(); i < classes; i += thread_count()) marks[i] = 0;
}

/// The shared state of one block that numbers classes in the order of its threads.
struct Numbering {
  int32_t* classes;  // [R]: the class with each number
  int32_t* marks;    // [K]: 1 + the number of each class; 0: none
};

/// Numbers the classes k of the block's threads (-1: none). New classes get numbers from `found`
/// on, in the order of the threads, as long as the numbers are below `end`. Returns the number of
/// new classes, even beyond `end`, and sets *own to the thread's number if its class is new, else
/// to -1.
TRAINYARD_DEVICE int32_t number_part(const Numbering& to, int32_t k, int32_t found, int32_t end,
                                     int32_t* own) {
  TRAINYARD_SHARED(int32_t, brought, [kPart]);
  TRAINYARD_SHARED(int32_t, is_first, [kPart]);
  const auto me = static_cast<int>(threadIdx.x);
  brought[me] = k;
  __syncthreads();
  bool is_new = k >= 0 && to.marks[k] == 0;
  for (int i = 0; is_new && i < me; ++i) is_new = brought[i] != k;
  is_first[me] = is_new ? 1 : 0;
  __syncthreads();  // is_first is complete, and all threads have read the marks
  int32_t before = 0, all = 0;
  for (int i = 0; i < kPart; ++i) {
    before += i < me ? is_first[i] : 0;
    all += is_first[i];
  }
  *own = is_new ? found + before : -1;
  if (is_new && *own < end) {
    to.classes[*own] = k;
    to.marks[k] = *own + 1;
  }
  __syncthreads();  // before the next part reads the marks and overwrites shared memory
  return all;
}

// Uses one block.
TRAINYARD_KERNEL void number_classes(SampleClassesParams p, SampleClassesOperands<Views> o,
                                     int32_t* marks) {
  TRAINYARD_SHARED(int64_t, draws);
  const Numbering to{o.classes, marks};
  const auto me = static_cast<int64_t>(threadIdx.x);
  const auto samples = static_cast<int32_t>(p.samples);
  if (me == 0) draws = p.draws_max();
  __syncthreads();
  const auto step = static_cast<uint64_t>(*o.step / p.micro_batches);
  int32_t found = 0, own = -1;
  for (int64_t t = 0; found < samples && t < p.draws_max(); t += kPart) {
    const bool draws_on = t + me < p.draws_max();
    const int64_t k = draws_on ? p.candidates.draw(p.seed, p.stream, step, t + me) : -1;
    found += number_part(to, static_cast<int32_t>(k), found, samples, &own);
    if (own == samples - 1) draws = t + me + 1;
  }
  for (int64_t k = 0; found < samples; k += kPart) {
    const int64_t mine = k + me < p.candidates.classes ? k + me : -1;
    found += number_part(to, static_cast<int32_t>(mine), found, samples, &own);
  }
  found = samples;
  const auto columns = static_cast<int32_t>(p.columns());
  for (int64_t j = p.samples; o.continues_step() && j < columns; j += kPart) {
    const int32_t label = j + me < columns ? o.kept[j + me] : -1;
    found += number_part(to, label, found, columns, &own);
  }
  for (int64_t m = 0; m < p.counted; m += kPart) {
    const int32_t label = m + me < p.counted ? o.counted[m + me] : -1;
    found += number_part(to, label_counts(label, p.ignored) ? label : -1, found, columns, &own);
  }
  for (int64_t j = found + me; j < columns; j += kPart) o.classes[j] = -1;
  __syncthreads();
  for (int64_t n = me; n < p.rows; n += kPart) {
    o.position[n] = label_counts(o.label[n], p.ignored) ? marks[o.label[n]] - 1 : -1;
  }
  for (int64_t j = me; j < columns; j += kPart) {
    const int32_t k = o.classes[j];
    if (o.kept != nullptr) o.kept[j] = k;
    o.log_expected[j] = k < 0 ? 0.0f : static_cast<float>(p.candidates.log_expected(k, draws));
  }
}

/// The columns of a row that take part in the softmax.
struct Columns {
  int64_t samples;
  int32_t label;
  TRAINYARD_DEVICE bool has(int64_t j) const { return label >= 0 && (j < samples || j == label); }
};

// prob may be z: each thread reads the values of z that the row's loss needs before the row's first
// reduction, and reads its elements before it writes them.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void sampled_rows(SampledXentParams p, const float* z, const int32_t* position,
                                   const float* log_expected, float* prob, float* row_loss) {
  using Threads = RowThreads<kBlock>;
  const In expected{log_expected};
  for (int64_t row = Threads::first(); row < p.rows; row += Threads::step()) {
    const In z_row{z + row * p.columns};
    const Out p_row{prob + row * p.columns};
    const Columns columns{p.samples, position[row]};
    const bool counts = columns.label >= 0;
    const float of_label = counts ? z_row[columns.label] - log_expected[columns.label] : 0.0f;
    RunningSoftmax s;
    Threads::template for_packs<kStep>(p.columns, [&](int64_t i) {
      const Pack<kStep> v = load<kStep>(z_row, i), q = load<kStep>(expected, i);
      for (int k = 0; k < kStep; ++k) {
        if (columns.has(i + k)) s.add(v.v[k] - q.v[k]);
      }
    });
    const float max = Threads::reduce(s.max, Max());
    const float sum = Threads::reduce(s.sum_below(max), Sum());
    Threads::template for_packs<kStep>(p.columns, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(z_row, i);
      const Pack<kStep> q = load<kStep>(expected, i);
      for (int k = 0; k < kStep; ++k) {
        v.v[k] = columns.has(i + k) ? math::exp(v.v[k] - q.v[k] - max) / sum : 0.0f;
      }
      store<kStep>(p_row, i, v);
    });
    if (Threads::lane() == 0) row_loss[row] = counts ? max + math::log(sum) - of_label : 0.0f;
  }
}

// dz may be prob: each thread reads its elements before it writes them.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void sampled_gradient(SampledXentParams p, const float* prob,
                                       const int32_t* position, const float* dloss,
                                       const double* weight, float* dz) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < p.rows; row += Threads::step()) {
    const In p_row{prob + row * p.columns};
    const Out dz_row{dz + row * p.columns};
    const Columns columns{p.samples, position[row]};
    const bool counts = columns.label >= 0 && *weight > 0;
    const float factor = counts ? static_cast<float>(static_cast<double>(*dloss) / *weight) : 0.0f;
    Threads::template for_packs<kStep>(p.columns, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(p_row, i);
      for (int k = 0; k < kStep; ++k) {
        const float c = i + k == columns.label ? 1.0f : 0.0f;
        v.v[k] = columns.has(i + k) ? factor * (v.v[k] - c) : 0.0f;
      }
      store<kStep>(dz_row, i, v);
    });
  }
}

template <int kStep>
TRAINYARD_KERNEL void rows_out_of(int64_t count, int64_t width, In table, const int32_t* index,
                                  Out y) {
  const int64_t packs = width / kStep;
  for (int64_t i = thread_index(); i < count * packs; i += thread_count()) {
    const int32_t row = index[i / packs];
    const int64_t column = i % packs * kStep;
    const Pack<kStep> v = row < 0 ? Pack<kStep>{} : load<kStep>(table, row * width + column);
    store<kStep>(y, i * kStep, v);
  }
}
template <int kStep>
TRAINYARD_KERNEL void rows_into(int64_t count, int64_t width, In y, const int32_t* index,
                                Out table) {
  const int64_t packs = width / kStep;
  for (int64_t i = thread_index(); i < count * packs; i += thread_count()) {
    const int32_t row = index[i / packs];
    if (row >= 0) store<kStep>(table, row * width + i % packs * kStep, load<kStep>(y, i * kStep));
  }
}

bool are_fours(int64_t width, const float* x, const float* y) {
  return width % 4 == 0 && takes_four({x}) && takes_four({y});
}

/// Returns a target in which each row with a position has the weight 1.
ClassTarget target_of_rows() {
  return {.ignored = -1, .kept = 1, .share = 0, .weight_sum = 0, .entropy = 0, .weights = nullptr};
}

}  // namespace

int64_t sample_classes_workspace_bytes(const SampleClassesParams& p) {
  return p.candidates.classes * static_cast<int64_t>(sizeof(int32_t));
}

void sample_classes(const SampleClassesParams& p, const SampleClassesOperands<Views>& o, Run run) {
  check(p, o);
  auto* const marks = workspace_of<int32_t>("sample_classes", run);
  launch(grid_for(p.candidates.classes), run.stream, clear_marks, p.candidates.classes, marks);
  launch({1, kPart}, run.stream, number_classes, p, o, marks);
}

int64_t sampled_xent_workspace_bytes(const SampledXentParams& p) {
  return p.rows * static_cast<int64_t>(sizeof(float));
}

void sampled_xent_forward(const SampledXentParams& p, const SampledXentOperands<Views>& o,
                          Run run) {
  check(p, o);
  auto* const row_loss = workspace_of<float>("sampled_xent_forward", run);
  const bool fours = are_fours(p.columns, o.z, o.prob) && takes_four({o.log_expected});
  with_rows(p.rows, p.columns, fours, [&](auto block, auto step, const Grid& grid) {
    launch(grid, run.stream, sampled_rows<block.value, step.value>, p, o.z, o.position,
           o.log_expected, o.prob, row_loss);
  });
  mean_of_rows(p.rows, target_of_rows(), row_loss, o.position, o.loss, run.stream);
}

int64_t sampled_xent_backward_workspace_bytes(const SampledXentParams&) {
  return static_cast<int64_t>(sizeof(double));
}

void sampled_xent_backward(const SampledXentParams& p, const SampledXentGradOperands<Views>& o,
                           Run run) {
  check(p, o);
  auto* const weight = workspace_of<double>("sampled_xent_backward", run);
  weigh_labels(p.rows, target_of_rows(), o.position, weight, run.stream);
  with_rows(p.rows, p.columns, are_fours(p.columns, o.prob, o.dz),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, sampled_gradient<block.value, step.value>, p, o.prob,
                     o.position, o.dloss, weight, o.dz);
            });
}

void take_rows(const TableRows& d, In table, const int32_t* index, Out y, Run run) {
  check_rows("take_rows", d, table, index, y);
  const bool fours = d.width % 4 == 0 && takes_four(table) && takes_four(y);
  launch(grid_for(d.count * d.width / (fours ? 4 : 1)), run.stream,
         fours ? rows_out_of<4> : rows_out_of<1>, d.count, d.width, table, index, y);
}

void put_rows(const TableRows& d, In y, const int32_t* index, Out table, Run run) {
  check_rows("put_rows", d, y, index, table);
  const bool fours = d.width % 4 == 0 && takes_four(y) && takes_four(table);
  launch(grid_for(d.count * d.width / (fours ? 4 : 1)), run.stream,
         fours ? rows_into<4> : rows_into<1>, d.count, d.width, y, index, table);
}

}  // namespace trainyard::kernels::cuda
