// kernels/embedding.h: the first and last layers of a sequence model: looking up table rows by
// index, adding learned positions, and pooling over positions.
//
//   to_index        index[i] = x[i], which is a whole number
//   gather          y[i] = table[index[i]]
//                   dtable[v] = sum of dy[i] over i with index[i] == v
//                   if the table is only a part of a larger one, whose other rows are on other
//                   ranks: y[i] = 0 for indices of those rows, and dtable has only its own rows
//   add_positions   y[n, t] = (t < P ? prefix[t] : x[n, t - P]) + position[t]
//                   dx[n, t] = dy[n, P + t]   dposition[t] = sum_n dy[n, t]   dprefix[t] the same
//   sequence_pool   first: y[n] = x[n, 0]
//                   last: y[n] = x[n, T - 1], or with tokens x at the last t with
//                   token[n, t] != padding (if there is none, y[n] = 0)
//                   mean: y[n] = mean over t of x[n, t]; with tokens only over t with
//                   token[n, t] != padding (if there is none, y[n] = 0)
//   sequence_max    y[n] = max over t of x[n, t]. With tokens, x[n, t] was computed from tokens t
//   ..
//                   t + S - T of S, and only those without padding (at the end) count, and
//                   the first. dx is dy at the first maximum, 0 elsewhere
//   reverse_sequence  y[n, t] = x[n, length[n] - 1 - t] for t < length[n], else x[n, t]
//   sequence_lengths  length[n] = 1 + the last t with token[n, t] != padding (if there is none, 0)
//
/// Shapes    table, dtable [V, D]; index [count] with values in [0, V), or if the table is a part,
///           values in the whole table; x, dx [N, T, D]; position [P + T, D]; prefix [P, D], P may
///           be 0; y of add_positions [N, P + T, D], of sequence_pool [N, D]; token [N, T] or
///           nullptr; length [N].
/// Writes    all of each output that is not null, assigned: rows named by no index become 0.
/// Aliasing  none, except that y may be x in add_positions if P is 0.
/// Numerics  sums run in the order of i, n or t.
/// Errors    none: the dataset reader has checked the indices, and preprocessing ensures that x of
///           to_index has valid ones.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/host_device.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct GatherDims {
  int64_t count;       // indices
  int64_t rows;        // V: rows of this table
  int64_t width;       // D: elements of a row
  int64_t first = -1;  // if the table is a part: its first row in the whole; -1: not a part

  /// Returns the row of this table that an index names; -1 if the row is in another part.
  TRAINYARD_HD int64_t row(int32_t index) const {
    if (first < 0) return index;
    return index >= first && index < first + rows ? index - first : -1;
  }
};

struct PositionDims {
  int64_t N, T, D;
  int64_t prefix;  // P: learned positions before x
};

enum class PoolMode : uint8_t { kMean, kFirst, kLast };

struct SequencePoolDims {
  int64_t N, T, D;
  PoolMode mode;
  int32_t padding = 0;  // the token that does not count
  /// Returns, for kFirst and kLast, the position that becomes y of row n; -1 if there is none.
  int64_t position(const int32_t* token, int64_t n) const {
    int64_t t = mode == PoolMode::kFirst ? 0 : T - 1;
    if (mode == PoolMode::kFirst || token == nullptr) return t;
    while (t >= 0 && token[n * T + t] == padding) --t;
    return t;
  }
};

struct SequenceMaxDims {
  int64_t N, T, D;
  int64_t S;            // tokens of a sequence, at least T
  int32_t padding = 0;  // the token that does not count

  /// Returns how many positions of a sequence count. `tokens` are those of the sequence, or
  /// nullptr.
  TRAINYARD_HD int64_t counted(const int32_t* tokens) const {
    if (tokens == nullptr) return T;
    int64_t t = T - 1;
    while (t > 0 && tokens[t + S - T] == padding) --t;
    return t + 1;
  }
};

struct ReverseDims {
  int64_t N, T, D;
  /// Returns the position of row n that becomes position t.
  TRAINYARD_HD int64_t source(const int32_t* length, int64_t n, int64_t t) const {
    const int64_t reversed = length[n] < T ? length[n] : T;
    return t < reversed ? reversed - 1 - t : t;
  }
};

struct SequenceLengthDims {
  int64_t N, T;
  int32_t padding;

  TRAINYARD_HD int32_t length(const int32_t* token, int64_t n) const {
    int64_t t = T;
    while (t > 0 && token[n * T + t - 1] == padding) --t;
    return static_cast<int32_t>(t);
  }
};

template <typename X, typename Y>
void check_sequence_max(const SequenceMaxDims& d, const X& x, const Y& written) {
  Contract("sequence_max")
      .size("values", d.N * d.T * d.D)
      .holds(d.S >= d.T, "S", "is less than T")
      .given("x", x)
      .given("output", written);
}
template <typename X, typename Y>
void check_reverse_sequence(const ReverseDims& d, const X& x, const int32_t* length, const Y& y) {
  Contract("reverse_sequence")
      .size("values", d.N * d.T * d.D)
      .given("x", x)
      .given("length", length)
      .given("y", y);
}
inline void check_sequence_lengths(const SequenceLengthDims& d, const int32_t* token,
                                   const int32_t* length) {
  Contract("sequence_lengths")
      .size("tokens", d.N * d.T)
      .given("token", token)
      .given("length", length);
}
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
template <typename T>
void sequence_max(const SequenceMaxDims& d, const T* x, const int32_t* token, T* y,
                  Run<T> run = {});
template <typename T>
void sequence_max_backward(const SequenceMaxDims& d, const T* x, const int32_t* token, const T* dy,
                           T* dx, Run<T> run = {});
template <typename T>
void reverse_sequence(const ReverseDims& d, const T* x, const int32_t* length, T* y,
                      Run<T> run = {});
template <typename T>
void sequence_lengths(const SequenceLengthDims& d, const int32_t* token, int32_t* length,
                      Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size: work is split along D, never along a summed
/// dimension.
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
void sequence_max(const SequenceMaxDims& d, const float* x, const int32_t* token, float* y,
                  Run run);
void sequence_max_backward(const SequenceMaxDims& d, const float* x, const int32_t* token,
                           const float* dy, float* dx, Run run);
void reverse_sequence(const ReverseDims& d, const float* x, const int32_t* length, float* y,
                      Run run);
void sequence_lengths(const SequenceLengthDims& d, const int32_t* token, int32_t* length, Run run);
}  // namespace cpu

/// Launches: 1 each, except: gather_backward those of kernels/cuda/scatter_rows.h, and 1 more if
/// the table is a part; add_positions_backward 1 for dx and 1 or 2 for the rest. Asynchronous on
/// `stream`; cudaPeekAtLastError() reports a failed launch.
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
void sequence_max(const SequenceMaxDims& d, In x, const int32_t* token, Out y, Run run);
void sequence_max_backward(const SequenceMaxDims& d, In x, const int32_t* token, In dy, Out dx,
                           Run run);
void reverse_sequence(const ReverseDims& d, In x, const int32_t* length, Out y, Run run);
void sequence_lengths(const SequenceLengthDims& d, const int32_t* token, int32_t* length, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
