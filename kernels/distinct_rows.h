// kernels/distinct_rows.h: lists the rows of a table that a batch's indices name, each once, so
// that only these rows are read, have a gradient and are updated.
//
//   distinct_rows   rows: first the rows of `kept`, unless this is the first micro-batch of a step;
//                   then the indices in `counted` that are not yet listed, each once, in the order
//                   of their first appearance; then -1 up to the end
//                   position[i]: the j with rows[j] == index[i]
//                   kept, if given, becomes a copy of rows
//
/// Shapes    index, position [count]; counted [M], the indices of all ranks, including index; rows,
///           kept [R], where R is at least the number of different indices in a step's
///           micro-batches; micro_step [1], the number of the micro-batch in its step, from 0.
/// Writes    all of rows, position and kept, assigned.
/// Aliasing  none.
/// Numerics  the results are the same on all backends.
/// Errors    none: the dataset reader has checked that indices are in [0, V).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct DistinctRowsParams {
  int64_t count = 1;    // indices of this rank
  int64_t counted = 1;  // M: indices of all ranks
  int64_t size = 1;     // R: length of `rows`
  int64_t table = 1;    // V: rows of the table
};
struct DistinctRowsOperands {
  const int32_t* index;       // [count]
  const int32_t* counted;     // [M]
  const int64_t* micro_step;  // [1]; nullptr: a step is one batch
  int32_t* kept;              // [R]; nullptr: a step is one batch
  int32_t* rows;              // [R]
  int32_t* position;          // [count]

  /// Returns whether `kept` lists rows of earlier micro-batches of this step. Reads micro_step,
  /// which must be in the caller's memory.
  bool continues_step() const { return kept != nullptr && *micro_step > 0; }
};

inline void check(const DistinctRowsParams& p, const DistinctRowsOperands& o) {
  Contract("distinct_rows")
      .size("count", p.count)
      .holds(p.counted >= p.count, "counted", "is shorter than count")
      .holds(p.size >= std::min(p.counted, p.table), "rows",
             "are fewer than the possible different rows")
      .holds((o.kept == nullptr) == (o.micro_step == nullptr), "kept",
             "must be given together with micro_step")
      .given("index", o.index)
      .given("counted", o.counted)
      .given("rows", o.rows)
      .given("position", o.position);
}

namespace reference {
template <typename T>
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run<T> run);
}  // namespace reference

/// Single-threaded; uses a hash table.
namespace cpu {
int64_t distinct_rows_workspace_bytes(const DistinctRowsParams& p);
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run run);
}  // namespace cpu

/// The workspace contains 4 bytes for each of the V rows. Launches: 7.
namespace cuda {
int64_t distinct_rows_workspace_bytes(const DistinctRowsParams& p);
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
