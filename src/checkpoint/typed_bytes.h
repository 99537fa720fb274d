// src/checkpoint/typed_bytes.h: the numbers of a checkpoint's tensor, however they are stored.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/checkpoint/safetensors.h"

namespace trainyard {

/// Returns the bytes of a tensor as its type has them: numbers of 16 bits are widened into
/// `buffer`.
std::span<const std::byte> typed_bytes(const TensorView& t, std::vector<std::byte>& buffer);

}  // namespace trainyard
