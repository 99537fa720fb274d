// src/models/generation.h: how layers become nodes of a graph that continues texts token by token
// (BuildOptions::generation).
//
//   new tokens [N, T] -> ... -> k, v -> written into the caches at the tokens' positions
//                              q ------> attention to rows 0 .. position of the caches -> ...
//
// Every other layer must compute each position from the same position alone: then the new tokens'
// results are those of the whole text. Tokens that fill up a run repeat the last one with its
// position, which writes the same keys once more.
#pragma once

#include <span>
#include <string_view>

#include "src/models/layer.h"

namespace trainyard {

/// The reason of the refusal of a layer that needs the whole text.
inline constexpr std::string_view kGenerationUnsupported = "GENERATION_LAYER_UNSUPPORTED";

/// Refuses a layer that does not compute each position from the same position alone, and is not
/// causal attention: FAILED_PRECONDITION with kGenerationUnsupported.
Status check_generation(const ResolvedLayer& layer);

/// Refuses, in the same way, a layer whose output has not one entry for each position.
Status check_positions(LayerBuilder& builder, const ResolvedLayer& layer, TensorId output);

/// Adds causal attention over the kept keys and values. `inputs` is packed, or query, key, value.
Result<TensorId> add_cached_attention(LayerBuilder& builder, const ResolvedLayer& layer,
                                      std::span<const TensorId> inputs, Attributes attributes);

}  // namespace trainyard
