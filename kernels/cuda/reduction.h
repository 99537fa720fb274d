// kernels/cuda/reduction.h: reductions to many results, each from many terms, in two stages. The
// first stage divides the terms of a result into slices, so that even few results fill the GPU; the
// second combines the slices. Within a block, threads are combined pairwise in a binary tree. The
// order depends only on the shapes.
//
// The operation is defined by a source, which is copied into the kernel:
//
//   using Acc = ...;                                   // trivially copyable, at most 96 bytes
//   Acc zero() const;
//   void add(Acc& acc, int64_t result, int64_t begin, int64_t end, int64_t step) const;
//   void merge(Acc& acc, const Acc& other) const;
//   void finish(int64_t result, const Acc& acc) const; // writes the result
//   static constexpr int kResident = ...;              // optional: number of blocks that must fit
//                                                      // on a multiprocessor at the same time
#pragma once

#include <bit>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

/// Adjacent threads process adjacent memory: either the terms of one sum are contiguous, or the
/// results of neighbouring sums.
enum class Adjacent : uint8_t { kTerms, kResults };

struct ReductionPlan {
  int64_t results = 0, terms = 0;
  int64_t slice = 0, slices = 1;  // terms per slice; slices per result
  int32_t lanes = 1;              // number of results that a block computes at the same time
  bool results_first = false;     // adjacent threads process adjacent results

  int64_t blocks() const { return (results + lanes - 1) / lanes * slices; }
};

constexpr int64_t kReductionBlocks = 1056;  // eight per multiprocessor of an H100 or H200
constexpr int64_t kSlicesMax = 512;

inline int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

inline ReductionPlan plan_reduction(int64_t results, int64_t terms, Adjacent adjacent) {
  ReductionPlan p{results, terms};
  p.results_first = adjacent == Adjacent::kResults;
  int64_t along_terms = kBlockThreads;
  if (p.results_first)
    along_terms /= std::min<int64_t>(kWarp, power_of_two(std::max<int64_t>(results, 1)));
  along_terms = std::min(along_terms, power_of_two(std::max<int64_t>(terms, 1)));
  p.lanes = static_cast<int32_t>(kBlockThreads / along_terms);
  const int64_t groups = p.blocks();
  if (groups == 0 || terms == 0) return p;
  // Every thread has at least eight terms.
  const int64_t wanted = std::min({(kReductionBlocks + groups - 1) / groups,
                                   (terms + 8 * along_terms - 1) / (8 * along_terms), kSlicesMax});
  const int64_t slice = (terms + wanted - 1) / wanted;
  p.slice = (slice + along_terms - 1) / along_terms * along_terms;
  p.slices = (terms + p.slice - 1) / p.slice;
  return p;
}

/// Returns the workspace for partial results; 0 if one stage is sufficient.
template <typename Source>
int64_t reduction_workspace_bytes(const ReductionPlan& p) {
  return p.slices == 1 ? 0
                       : p.slices * p.results * static_cast<int64_t>(sizeof(typename Source::Acc));
}

template <typename Source>
constexpr int resident_blocks() {
  if constexpr (requires { Source::kResident; }) {
    return Source::kResident;
  } else {
    return 1;
  }
}

template <typename Source>
TRAINYARD_KERNEL_OF(kBlockThreads, resident_blocks<Source>())
void reduce_slices(ReductionPlan p, Source source, typename Source::Acc* partial) {
  using Acc = typename Source::Acc;
  TRAINYARD_SHARED(Acc, joined, [kBlockThreads]);
  const int lanes = p.lanes, rows = kBlockThreads / lanes, thread = static_cast<int>(threadIdx.x);
  const int lane = p.results_first ? thread % lanes : thread / rows;
  const int row = p.results_first ? thread / lanes : thread % rows;
  const int64_t blocks = (p.results + lanes - 1) / lanes * p.slices;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t group = block / p.slices, slice = block - group * p.slices;
    const int64_t result = group * lanes + lane, begin = slice * p.slice;
    const int64_t end = begin + p.slice < p.terms ? begin + p.slice : p.terms;
    Acc acc = source.zero();
    if (result < p.results) source.add(acc, result, begin + row, end, rows);
    Acc& own = joined[row * lanes + lane];
    own = acc;
    for (int step = rows / 2; step > 0; step /= 2) {
      __syncthreads();
      if (row < step) source.merge(own, joined[(row + step) * lanes + lane]);
    }
    if (row == 0 && result < p.results) {
      if (p.slices == 1) {
        source.finish(result, own);
      } else {
        partial[slice * p.results + result] = own;
      }
    }
    __syncthreads();  // joined[] must be read before the next iteration overwrites it
  }
}

/// A source whose terms are the partial results of another source's slices.
template <typename Source>
struct Slices {
  using Acc = typename Source::Acc;
  Source source;
  const Acc* partial;
  int64_t results;
  TRAINYARD_DEVICE Acc zero() const { return source.zero(); }
  TRAINYARD_DEVICE void add(Acc& acc, int64_t result, int64_t begin, int64_t end,
                            int64_t step) const {
    for (int64_t j = begin; j < end; j += step) source.merge(acc, partial[j * results + result]);
  }
  TRAINYARD_DEVICE void merge(Acc& acc, const Acc& other) const { source.merge(acc, other); }
  TRAINYARD_DEVICE void finish(int64_t result, const Acc& acc) const { source.finish(result, acc); }
};

/// One or two launches. `workspace` must have reduction_workspace_bytes().
template <typename Source>
void reduce(const ReductionPlan& p, const Source& source, void* workspace, CUstream_st* stream) {
  auto* partial = static_cast<typename Source::Acc*>(workspace);
  launch({std::min(p.blocks(), kBlocksMax)}, stream, reduce_slices<Source>, p, source, partial);
  if (p.slices == 1) return;
  ReductionPlan joining = plan_reduction(p.results, p.slices, Adjacent::kResults);
  joining.slices = 1;
  joining.slice = p.slices;
  launch({std::min(joining.blocks(), kBlocksMax)}, stream, reduce_slices<Slices<Source>>, joining,
         Slices<Source>{source, partial, p.results}, partial);
}

}  // namespace trainyard::kernels::cuda
