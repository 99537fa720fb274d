// kernels/distinct_rows.h: the rows of a table that a batch's indices name, each once, so that only
// these are read, have a gradient and are updated.
//
//   distinct_rows   rows[j]: what `kept` has, but in the first micro-batch of a step; then the
//                   indices of `counted` that are not among them, each once, in the order in which
//                   they first appear; then -1
//                   position[i]: where index[i] stands in rows
//                   kept, if it is given, becomes rows
//
/// Shapes    index, position [count]; counted [M], of all ranks, of which index is a part; rows,
///           kept [R], R at least the different indices of a step's micro-batches; micro_step [1],
///           which of them it is, from 0.
/// Writes    all of rows and position, assigned, and of kept.
/// Aliasing  none.
/// Numerics  the same on all backends.
/// Errors    none of its own: indices are in [0, V), the dataset reader has checked them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct DistinctRowsParams {
  int64_t count = 1;    // indices of this rank
  int64_t counted = 1;  // M
  int64_t size = 1;     // R
  int64_t table = 1;    // V
};
struct DistinctRowsOperands {
  const int32_t* index;       // [count]
  const int32_t* counted;     // [M]
  const int64_t* micro_step;  // [1]; nullptr: a step is one batch
  int32_t* kept;              // [R]; likewise
  int32_t* rows;              // [R]
  int32_t* position;          // [count]

  /// Whether what is kept counts. Of memory that the caller can read.
  bool goes_on() const { return kept != nullptr && *micro_step > 0; }
};

inline void check(const DistinctRowsParams& p, const DistinctRowsOperands& o) {
  Contract("distinct_rows")
      .size("count", p.count)
      .holds(p.counted >= p.count, "counted", "has not all ranks' indices")
      .holds(p.size >= std::min(p.counted, p.table), "rows", "are too few for all that may differ")
      .holds((o.kept == nullptr) == (o.micro_step == nullptr), "kept", "goes with micro_step")
      .given("index", o.index)
      .given("counted", o.counted)
      .given("rows", o.rows)
      .given("position", o.position);
}

namespace reference {
template <typename T>
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run<T> run);
}  // namespace reference

/// One thread, by hashing.
namespace cpu {
int64_t distinct_rows_workspace_bytes(const DistinctRowsParams& p);
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run run);
}  // namespace cpu

/// Keeps 4 bytes for each of the V rows in its workspace. Launches: 7.
namespace cuda {
int64_t distinct_rows_workspace_bytes(const DistinctRowsParams& p);
void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
