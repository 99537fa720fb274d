// src/train/initialize.h: first values of parameters and state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/graph/graph.h"

namespace trainyard {

/// Fills `out` (tensor.type.bytes() long) as tensor.initializer says. Element i is a function of
/// (seed, tensor.name, i): u = Philox(seed, stream_of(name), step 0, index i) and a + (b - a) * u
/// in double, then rounded to the tensor's type. Normal numbers take two draws, at 2i and 2i + 1
/// (Box and Muller 1958). A tensor of another type than F32 or F64 is a fault.
void initialize_tensor(const TensorInfo& tensor, uint64_t seed, std::span<std::byte> out);
/// The same of a tensor of which `rank` holds a shard: its elements of the whole one, and 0 behind
/// them.
void initialize_shard(const TensorInfo& tensor, uint64_t seed, int64_t rank,
                      std::span<std::byte> out);

}  // namespace trainyard
