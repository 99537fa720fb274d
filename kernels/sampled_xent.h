// kernels/sampled_xent.h: softmax and cross-entropy over some of K classes: those of the batch's
// labels, and S sampled ones (kernels/math/candidates.h), each class once.
//
//   sample_classes         class: the first S different draws, in the order of the draws; then the
//                          labels in `counted` that are not among them, in order; then -1.
//                          position[n]: the column of row n's label in class, -1 if it is ignored.
//                          log_expected[j] = log Q[j], Q = 1 - (1 - P)^T with T the number of
//                          draws; 0 where class is -1. The draws depend on the step, step /
//                          micro_batches. After a step's first micro-batch, the labels in `kept`
//                          come directly after the draws. kept, if given, becomes a copy of class
//   sampled_xent_forward   the columns of row n are the first S and that of its label, each once;
//                          with a[n,j] = z[n,j] - log_expected[j] in those columns
//                            p[n,j] = softmax of a[n], 0 in all other columns
//                            loss   = -mean over rows with a position of log p[n, position[n]]
//   sampled_xent_backward  dz[n,j] = dloss (p[n,j] - [j == position[n]]) / rows with a position,
//                          0 in other columns, and in rows without a position
//   take_rows              y[r] = table[index[r]], 0 where index[r] is -1
//   put_rows               table[index[r]] = y[r]; rows with index -1 are skipped
//
// Shapes    label, position [N]; counted [M], the labels of all ranks' rows, including label;
//           class, kept, log_expected [R], R = S + M micro_batches; micro_step [1], the number of
//           the micro-batch in its step; z, p, dz [N, R]; loss, dloss [1]; table [K, D], index [R]
//           without duplicates, y [R, D].
// Writes    all of each output, and of kept, assigned; put_rows writes only the indexed rows.
// Aliasing  p may be z; dz may be p.
// Numerics  the sampled classes are the same on all backends. Rows are summed in double, in order.
// Errors    none: labels are in [0, K), or below 0 in rows that do not count.
//
// Source: Jean et al. (2015), see candidates.h. If a row's label is also drawn, it counts once in
// that row ("accidental hits are removed").
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/candidates.h"
#include "kernels/math/host_device.h"
#include "kernels/math/label.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct SampleClassesParams {
  int64_t rows = 1;     // N: rows of this rank
  int64_t counted = 1;  // M: rows of all ranks
  int64_t samples = 1;  // S, at most K / 2
  int64_t ignored = -1;
  uint64_t seed = 0;
  uint32_t stream = 0;
  math::Candidates candidates;
  int64_t micro_batches = 1;  // number of micro-batches in a step

  constexpr int64_t columns() const { return samples + counted * micro_batches; }
  /// While at least half of the draws are still to be found, a draw finds a new class with a
  /// probability of at least log 2 / log(K + 1), so this limit is practically never reached. Beyond
  /// it the lowest unused classes fill the missing places.
  constexpr int64_t draws_max() const { return 1000 * (samples + 1); }
};
template <typename T>
struct SampleClassesOperands {
  const int32_t* label;                 // [N]
  const int32_t* counted;               // [M]
  const int64_t* step;                  // [1]
  int32_t* classes;                     // [R]
  int32_t* position;                    // [N]
  NumberOf<T>* log_expected;            // [R]
  const int64_t* micro_step = nullptr;  // [1]; nullptr: a step is one batch
  int32_t* kept = nullptr;              // [R]; nullptr: a step is one batch

  /// Returns whether `kept` has labels of earlier micro-batches of this step. Reads micro_step,
  /// which must be in the caller's memory.
  TRAINYARD_HD bool continues_step() const { return kept != nullptr && *micro_step > 0; }
};

struct SampledXentParams {
  int64_t rows = 1;     // N
  int64_t columns = 1;  // R: candidate classes
  int64_t samples = 1;  // S: sampled classes, the first columns
};
template <typename T>
struct SampledXentOperands {
  const NumberOf<T>* z;  // [N, R]
  const int32_t* position;
  const NumberOf<T>* log_expected;  // [R]
  NumberOf<T>* loss;                // [1]
  NumberOf<T>* prob;                // [N, R]
};
template <typename T>
struct SampledXentGradOperands {
  const NumberOf<T>* prob;  // [N, R]
  const int32_t* position;
  const NumberOf<T>* dloss;  // [1]
  NumberOf<T>* dz;           // [N, R]
};

struct TableRows {
  int64_t count = 1;  // R: indices
  int64_t rows = 1;   // K: rows of the table
  int64_t width = 1;  // D: elements of a row
};

template <typename T>
void check(const SampleClassesParams& p, const SampleClassesOperands<T>& o) {
  Contract("sample_classes")
      .size("rows", p.rows)
      .holds(p.counted >= p.rows, "counted", "has not all rows' labels")
      .holds(p.samples >= 1 && p.samples <= p.candidates.classes / 2, "samples",
             "are not 1 to half of the classes")
      .given("label", o.label)
      .given("counted", o.counted)
      .given("step", o.step)
      .holds(p.micro_batches >= 1, "micro_batches", "are fewer than one")
      .holds((o.kept == nullptr) == (o.micro_step == nullptr), "kept",
             "must be given together with micro_step")
      .holds(o.kept != nullptr || p.micro_batches == 1, "kept", "is missing")
      .given("classes", o.classes)
      .given("position", o.position)
      .given("log_expected", o.log_expected);
}
inline Contract check(const char* kernel, const SampledXentParams& p) {
  const Contract contract(kernel);
  contract.size("rows", p.rows)
      .size("samples", p.samples)
      .holds(p.columns >= p.samples, "columns", "are fewer than the samples");
  return contract;
}
template <typename T>
void check(const SampledXentParams& p, const SampledXentOperands<T>& o) {
  check("sampled_xent_forward", p)
      .given("z", o.z)
      .given("position", o.position)
      .given("log_expected", o.log_expected)
      .given("loss", o.loss)
      .given("prob", o.prob);
}
template <typename T>
void check(const SampledXentParams& p, const SampledXentGradOperands<T>& o) {
  check("sampled_xent_backward", p)
      .given("prob", o.prob)
      .given("position", o.position)
      .given("dloss", o.dloss)
      .given("dz", o.dz);
}
template <typename X, typename Y>
void check_rows(const char* kernel, const TableRows& d, const X& read, const int32_t* index,
                const Y& written) {
  Contract(kernel)
      .size("count", d.count)
      .size("rows", d.rows)
      .size("width", d.width)
      .given("index", index)
      .given("input", read)
      .given("output", written);
}

namespace reference {  // T is float or double
template <typename T>
void sample_classes(const SampleClassesParams& p, const SampleClassesOperands<T>& o,
                    Run<T> run = {});
template <typename T>
void sampled_xent_forward(const SampledXentParams& p, const SampledXentOperands<T>& o,
                          Run<T> run = {});
template <typename T>
void sampled_xent_backward(const SampledXentParams& p, const SampledXentGradOperands<T>& o,
                           Run<T> run = {});
template <typename T>
void take_rows(const TableRows& d, const T* table, const int32_t* index, T* y, Run<T> run = {});
template <typename T>
void put_rows(const TableRows& d, const T* y, const int32_t* index, T* table, Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
int64_t sample_classes_workspace_bytes(const SampleClassesParams& p);
void sample_classes(const SampleClassesParams& p, const SampleClassesOperands<float>& o, Run run);
int64_t sampled_xent_workspace_bytes(const SampledXentParams& p);
void sampled_xent_forward(const SampledXentParams& p, const SampledXentOperands<float>& o, Run run);
void sampled_xent_backward(const SampledXentParams& p, const SampledXentGradOperands<float>& o,
                           Run run);
void take_rows(const TableRows& d, const float* table, const int32_t* index, float* y, Run run);
void put_rows(const TableRows& d, const float* y, const int32_t* index, float* table, Run run);
}  // namespace cpu

/// The workspace of sample_classes contains 4 bytes for each of the K classes. A row's loss is
/// summed in F32, the rows' losses in double. Launches: sample_classes, forward and backward 2
/// each; take_rows and put_rows 1 each.
namespace cuda {
int64_t sample_classes_workspace_bytes(const SampleClassesParams& p);
void sample_classes(const SampleClassesParams& p, const SampleClassesOperands<Views>& o, Run run);
int64_t sampled_xent_workspace_bytes(const SampledXentParams& p);
void sampled_xent_forward(const SampledXentParams& p, const SampledXentOperands<Views>& o, Run run);
int64_t sampled_xent_backward_workspace_bytes(const SampledXentParams& p);
void sampled_xent_backward(const SampledXentParams& p, const SampledXentGradOperands<Views>& o,
                           Run run);
void take_rows(const TableRows& d, In table, const int32_t* index, Out y, Run run);
void put_rows(const TableRows& d, In y, const int32_t* index, Out table, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
