// Elementwise operations on parameters and gradients: updates, moving averages, clipping and
// accumulation. The formulas are those of the CPU, from kernels/math/optimizers.h. For Muon, the
// steps around its matrix products are here.
//
// Access   each thread processes four adjacent elements, so that warps access whole cache lines.
//          Adam reads p, m, v and g and writes p, m and v: 28 B a parameter; sgd with momentum 20
//          B, without 12 B; a copy of the parameter in 16 bits 2 B more; a moving average and an
//          accumulated gradient 12 B, a clipped gradient 8 B.
// Constants depend on the learning rate and the step, which are in device memory. One thread of
// each
//          block computes them, in double as on the CPU; the grid is small, so few blocks do so.
// Many     tensors are updated in one launch: a block processes 4096 elements of one tensor. It
// reads
//          a table entry of 16 B, and the tensor's operands, about 150 B, which follow the table.
// Time     bytes / 4.8 TB/s on an H200: Adam on 100 M parameters in 0.58 ms.
#include <cstring>
#include <type_traits>

#include "kernels/alignment.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/updates.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int64_t kUpdateBlocks = 1056;  // eight per multiprocessor of an H100 or H200
constexpr int64_t kChunk = 4096;         // elements per block of a table; a multiple of 4

template <typename U>
TRAINYARD_HD inline Out copy_of(const U& u) {
  if constexpr (requires { u.copy; }) {
    return u.copy;
  } else {
    return {};
  }
}

/// Updates elements [first, end) with `threads` threads, of which this one has the index `thread`.
template <typename U>
TRAINYARD_DEVICE void step_through(const U& u, const typename U::Constants& c, bool fours,
                                   int64_t first, int64_t end, int64_t thread, int64_t threads) {
  const In source = u.source();
  const Out target = u.target(), copy = copy_of(u);
  const UpdateStates states = u.states();
  float* const* s = states.of;
  if (!fours) {
    for (int64_t i = first + thread; i < end; i += threads) {
      float value = U::kReadsTarget ? In(target)[i] : 0.0f;
      U::step(c, source[i], value, s[0] == nullptr ? nullptr : s[0] + i,
              s[1] == nullptr ? nullptr : s[1] + i, s[2] == nullptr ? nullptr : s[2] + i);
      target.set(i, value);
      if (copy) copy.set(i, value);
    }
    return;
  }
  for (int64_t i = first + 4 * thread; i < end; i += 4 * threads) {
    const Four given = load4(source, i);
    Four value = {}, kept[3] = {};
    if (U::kReadsTarget) value = load4(target, i);
    for (int k = 0; k < 3; ++k) {
      if (s[k] != nullptr) kept[k] = load4({s[k]}, i);
    }
    for (int e = 0; e < 4; ++e) {
      U::step(c, given.v[e], value.v[e], s[0] == nullptr ? nullptr : &kept[0].v[e],
              s[1] == nullptr ? nullptr : &kept[1].v[e], s[2] == nullptr ? nullptr : &kept[2].v[e]);
    }
    store4(target, i, value);
    if (copy) store4(copy, i, value);
    for (int k = 0; k < 3; ++k) {
      if (s[k] != nullptr) store4({s[k]}, i, kept[k]);
    }
  }
}

template <typename U>
TRAINYARD_KERNEL void update_one(U u, bool fours) {
  if (u.is_skipped()) return;
  TRAINYARD_SHARED(typename U::Constants, c);
  if (threadIdx.x == 0) c = u.constants();
  __syncthreads();
  step_through(u, c, fours, 0, u.s.count, thread_index(), thread_count());
}

/// One block's part of a table: elements of update number `of`, from `first` on.
struct Chunk {
  int32_t of;
  int32_t fours;
  int64_t first;
};

template <typename U>
TRAINYARD_KERNEL void update_chunks(const Chunk* chunks, const U* updates) {
  const Chunk chunk = chunks[blockIdx.x];
  const U& u = updates[chunk.of];
  if (u.is_skipped()) return;
  TRAINYARD_SHARED(typename U::Constants, c);
  if (threadIdx.x == 0) c = u.constants();
  __syncthreads();
  const int64_t end = chunk.first + kChunk < u.s.count ? chunk.first + kChunk : u.s.count;
  step_through(u, c, chunk.fours != 0, chunk.first, end, threadIdx.x, blockDim.x);
}

Grid update_grid(int64_t steps) { return {std::min(grid_for(steps).blocks, kUpdateBlocks)}; }

template <typename U>
bool takes_fours(const U& u) {
  bool yes = u.s.count % 4 == 0 && takes_four(u.source()) && takes_four(u.target()) &&
             takes_four(copy_of(u));
  for (float* const state : u.states().of) yes &= takes_four({state});
  return yes;
}

/// The offset in bytes of the updates in a table, after its chunks.
int64_t updates_at(int64_t chunks) {
  return round_up(chunks * static_cast<int64_t>(sizeof(Chunk)), kCudaAlignment);
}

// Muon. The first kernel sums squares of x per block while it writes x; the second adds these sums
// and divides by the norm.

constexpr int64_t kNormBlocks = 264;

TRAINYARD_KERNEL void momentum_and_direction(int64_t count, float new_share, float momentum,
                                             bool nesterov, In g, const float* learning_rate,
                                             float* m, float* x, double* squares) {
  const bool skipped = math::is_skipped(*learning_rate);
  double sum = 0;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const float gradient = g[i];
    const float updated = m[i] + new_share * (gradient - m[i]);
    if (!skipped) m[i] = updated;
    const float direction = nesterov ? gradient + momentum * (updated - gradient) : updated;
    x[i] = direction;
    sum += static_cast<double>(direction) * static_cast<double>(direction);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

TRAINYARD_KERNEL void divide_by_norm(int64_t count, int64_t parts, const double* squares,
                                     float* x) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) sum += squares[i];
  const double norm = std::sqrt(block_sum(sum));
  const auto scale =
      static_cast<float>(1 / (norm < math::kMuonEpsilon ? math::kMuonEpsilon : norm));
  for (int64_t i = thread_index(); i < count; i += thread_count()) x[i] *= scale;
}

TRAINYARD_KERNEL void polynomial(int64_t side, const float* gram, float* square) {
  const int64_t count = side * side;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    float v =
        static_cast<float>(math::kMuonB) * gram[i] + static_cast<float>(math::kMuonC) * square[i];
    if (i % (side + 1) == 0) v += static_cast<float>(math::kMuonA);
    square[i] = v;
  }
}

TRAINYARD_KERNEL void step_along(MuonParams s, const float* x, const float* learning_rate,
                                 float* p) {
  if (math::is_skipped(*learning_rate)) return;
  TRAINYARD_SHARED(float, constants, [2]);
  if (threadIdx.x == 0) {
    const double rate = *learning_rate * s.rate_factor;
    constants[0] = static_cast<float>(1 - rate * s.weight_decay);
    constants[1] = static_cast<float>(math::muon_rate(rate, s.match_adamw, s.rows, s.columns));
  }
  __syncthreads();
  const float kept = constants[0], step = constants[1];
  const int64_t count = s.rows * s.columns;
  for (int64_t i = thread_index(); i < count; i += thread_count()) p[i] = p[i] * kept - step * x[i];
}

}  // namespace

template <typename U>
void update(const U& u, CUstream_st* stream) {
  const bool fours = takes_fours(u);
  launch(update_grid(fours ? u.s.count / 4 : u.s.count), stream, update_one<U>, u, fours);
}

template <typename U>
UpdateTable update_table(std::span<const U> updates) {
  static_assert(std::is_trivially_copyable_v<U>);
  std::vector<Chunk> chunks;
  for (size_t k = 0; k < updates.size(); ++k) {
    for (int64_t first = 0; first < updates[k].s.count; first += kChunk) {
      chunks.push_back({static_cast<int32_t>(k), takes_fours(updates[k]) ? 1 : 0, first});
    }
  }
  UpdateTable table;
  table.chunks = static_cast<int64_t>(chunks.size());
  const auto at = static_cast<size_t>(updates_at(table.chunks));
  table.bytes.resize(at + updates.size_bytes());
  std::memcpy(table.bytes.data(), chunks.data(), chunks.size() * sizeof(Chunk));
  std::memcpy(table.bytes.data() + at, updates.data(), updates.size_bytes());
  return table;
}

template <typename U>
void update_all(const void* table, int64_t chunks, CUstream_st* stream) {
  const auto* updates =
      reinterpret_cast<const U*>(static_cast<const std::byte*>(table) + updates_at(chunks));
  launch({chunks}, stream, update_chunks<U>, static_cast<const Chunk*>(table), updates);
}

#define TRAINYARD_UPDATE(U)                                      \
  template void update(const U& u, CUstream_st* stream);         \
  template UpdateTable update_table(std::span<const U> updates); \
  template void update_all<U>(const void* table, int64_t chunks, CUstream_st* stream);
TRAINYARD_UPDATE(SgdUpdate)
TRAINYARD_UPDATE(AdamUpdate)
TRAINYARD_UPDATE(RmspropUpdate)
TRAINYARD_UPDATE(LionUpdate)
TRAINYARD_UPDATE(MovingAverageUpdate)
TRAINYARD_UPDATE(GradientAccumulation)
TRAINYARD_UPDATE(GradientClipping)
TRAINYARD_UPDATE(Conversion)
#undef TRAINYARD_UPDATE

int64_t muon_norm_workspace_bytes() { return kNormBlocks * static_cast<int64_t>(sizeof(double)); }

void muon_begin(const MuonParams& s, In g, const float* learning_rate, float* m, float* x,
                void* workspace, CUstream_st* stream) {
  const int64_t count = s.rows * s.columns;
  const int64_t blocks = std::min(grid_for(count).blocks, kNormBlocks);
  auto* squares = static_cast<double*>(workspace);
  launch({blocks}, stream, momentum_and_direction, count, static_cast<float>(1 - s.momentum),
         static_cast<float>(s.momentum), s.nesterov, g, learning_rate, m, x, squares);
  launch({blocks}, stream, divide_by_norm, count, blocks, squares, x);
}

void muon_polynomial(int64_t side, const float* gram, float* square, CUstream_st* stream) {
  launch(grid_for(side * side), stream, polynomial, side, gram, square);
}

void muon_end(const MuonParams& s, const float* x, const float* learning_rate, float* p,
              CUstream_st* stream) {
  launch(update_grid(s.rows * s.columns), stream, step_along, s, x, learning_rate, p);
}

}  // namespace trainyard::kernels::cuda
