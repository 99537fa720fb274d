// src/train/initialize.h: initial values of parameters and state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/graph/graph.h"

namespace trainyard {

/// Fills `out` (tensor.type.bytes() long) according to tensor.initializer. Element i is a function
/// of (seed, tensor.name, i): u = Philox(seed, stream_of(name), step 0, index i) and a + (b - a) *
/// u in double, then rounded to the tensor's type. Normal numbers take two draws, at 2i and 2i + 1
/// (Box and Muller 1958). The type must be F32, F64 or I64, else a check fails.
void initialize_tensor(const TensorInfo& tensor, uint64_t seed, std::span<std::byte> out);
/// Fills `out` with the values of a tensor's elements from `first` on, as many as fit.
void initialize_part(const TensorInfo& tensor, uint64_t seed, int64_t first,
                     std::span<std::byte> out);
/// Fills `out` with the shard of `rank`: each element has its value in the whole tensor; the
/// padding after them is 0.
void initialize_shard(const TensorInfo& tensor, uint64_t seed, int64_t rank,
                      std::span<std::byte> out);

}  // namespace trainyard
