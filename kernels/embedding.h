// kernels/embedding.h: what stands at the two ends of a sequence model: rows of a table by index,
// learned positions in front of the blocks, and pooling over the positions behind them.
//
//   to_index        index[i] = x[i], a whole number
//   gather          y[i] = table[index[i]]
//                   dtable[v] = sum of dy[i] over i with index[i] == v
//                   of a part of a table: of its rows alone, y[i] = 0 for an index of another part
//   add_positions   y[n, t] = (t < P ? prefix[t] : x[n, t - P]) + position[t]
//                   dx[n, t] = dy[n, P + t]   dposition[t] = sum_n dy[n, t]   dprefix[t] the same
//   sequence_pool   first: y[n] = x[n, 0]
//                   last: y[n] = x[n, T - 1], or where tokens are given x at the last t with
//                   token[n, t] != 0 (none: y[n] = 0)
//                   mean: y[n] = mean over t of x[n, t], of which those with token[n, t] == 0 are
//                   left out where tokens are given (none left: y[n] = 0)
//
/// Shapes    table, dtable [V, D]; index [count] with values in [0, V), of a part of a table in the
///           whole one; x, dx [N, T, D]; position
///           [P + T, D]; prefix [P, D], P may be 0; y of add_positions [N, P + T, D], of
///           sequence_pool [N, D]; token [N, T] or nullptr.
/// Writes    all of each output that is not null, assigned: rows that no index names get 0.
/// Aliasing  none, but y may be x in add_positions where P is 0.
/// Numerics  sums run in the order of i, n or t.
/// Errors    none of its own: the dataset reader has checked the indices, and preprocessing makes
///           those of to_index.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/host_device.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct GatherDims {
  int64_t count;       // indices
  int64_t rows;        // V
  int64_t width;       // D
  int64_t first = -1;  // of a part: where its rows begin in the whole table; -1: the table is whole

  /// Where the table has the row of an index, -1 if another part has it.
  TRAINYARD_HD int64_t row(int32_t index) const {
    if (first < 0) return index;
    return index >= first && index < first + rows ? index - first : -1;
  }
};

struct PositionDims {
  int64_t N, T, D;
  int64_t prefix;  // P
};

enum class PoolMode : uint8_t { kMean, kFirst, kLast };

struct SequencePoolDims {
  int64_t N, T, D;
  PoolMode mode;
  /// Of modes first and last: the position that counts in row n, -1 where there is none.
  int64_t position(const int32_t* token, int64_t n) const {
    int64_t t = mode == PoolMode::kFirst ? 0 : T - 1;
    if (mode == PoolMode::kFirst || token == nullptr) return t;
    while (t >= 0 && token[n * T + t] == 0) --t;
    return t;
  }
};

template <typename X>
void check_to_index(int64_t count, const X& x, const int32_t* index) {
  Contract("to_index").size("count", count).given("x", x).given("index", index);
}
template <typename X, typename Y>
void check_gather(const GatherDims& d, const X& read, const int32_t* index, const Y& written) {
  Contract("gather")
      .size("rows", d.rows)
      .size("width", d.width)
      .given("index", index)
      .given("input", read)
      .given("output", written);
}
template <typename X, typename Y>
void check_positions(const PositionDims& d, const X& x, const X& position, const X& prefix,
                     const Y& y) {
  Contract("add_positions")
      .size("values", d.N * d.T * d.D)
      .given("x", x)
      .given("position", position)
      .holds(d.prefix == 0 || static_cast<bool>(prefix), "prefix", "is missing")
      .given("y", y);
}
template <typename X>
void check_positions_grad(const PositionDims& d, const X& dy) {
  Contract("add_positions_backward").size("values", d.N * d.T * d.D).given("dy", dy);
}
template <typename X, typename Y>
void check_sequence_pool(const SequencePoolDims& d, const X& read, const Y& written) {
  Contract("sequence_pool")
      .size("values", d.N * d.T * d.D)
      .given("input", read)
      .given("output", written);
}

namespace reference {  // T is float or double
template <typename T>
void to_index(int64_t count, const T* x, int32_t* index, Run<T> run = {});
template <typename T>
void gather(const GatherDims& d, const T* table, const int32_t* index, T* y, Run<T> run = {});
template <typename T>
void gather_backward(const GatherDims& d, const int32_t* index, const T* dy, T* dtable,
                     Run<T> run = {});
template <typename T>
void add_positions(const PositionDims& d, const T* x, const T* position, const T* prefix, T* y,
                   Run<T> run = {});
template <typename T>
void add_positions_backward(const PositionDims& d, const T* dy, T* dx, T* dposition, T* dprefix,
                            Run<T> run = {});
template <typename T>
void sequence_pool(const SequencePoolDims& d, const T* x, const int32_t* token, T* y,
                   Run<T> run = {});
template <typename T>
void sequence_pool_backward(const SequencePoolDims& d, const int32_t* token, const T* dy, T* dx,
                            Run<T> run = {});
}  // namespace reference

/// The same bits for a team of any size: sums are cut along D, never along what is summed.
namespace cpu {
void to_index(int64_t count, const float* x, int32_t* index, Run run);
void gather(const GatherDims& d, const float* table, const int32_t* index, float* y, Run run);
void gather_backward(const GatherDims& d, const int32_t* index, const float* dy, float* dtable,
                     Run run);
void add_positions(const PositionDims& d, const float* x, const float* position,
                   const float* prefix, float* y, Run run);
void add_positions_backward(const PositionDims& d, const float* dy, float* dx, float* dposition,
                            float* dprefix, Run run);
void sequence_pool(const SequencePoolDims& d, const float* x, const int32_t* token, float* y,
                   Run run);
void sequence_pool_backward(const SequencePoolDims& d, const int32_t* token, const float* dy,
                            float* dx, Run run);
}  // namespace cpu

/// Launches: 1 each, but gather_backward as kernels/cuda/scatter_rows.h says and, of a part of a
/// table, 1 more, and
/// add_positions_backward 1 for dx and 1 or 2 for the rest. Asynchronous on `stream`; a launch that
/// failed is told by cudaPeekAtLastError().
namespace cuda {
void to_index(int64_t count, In x, int32_t* index, Run run);
void gather(const GatherDims& d, In table, const int32_t* index, Out y, Run run);
int64_t gather_backward_workspace_bytes(const GatherDims& d);
void gather_backward(const GatherDims& d, const int32_t* index, In dy, Out dtable, Run run);
void add_positions(const PositionDims& d, In x, In position, In prefix, Out y, Run run);
int64_t add_positions_backward_workspace_bytes(const PositionDims& d);
void add_positions_backward(const PositionDims& d, In dy, Out dx, Out dposition, Out dprefix,
                            Run run);
void sequence_pool(const SequencePoolDims& d, In x, const int32_t* token, Out y, Run run);
void sequence_pool_backward(const SequencePoolDims& d, const int32_t* token, In dy, Out dx,
                            Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
