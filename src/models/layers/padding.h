// src/models/layers/padding.h: the tokens that some layers read besides a sequence, so that the
// padding at the end of rows has no effect.
#pragma once

#include "src/models/layer.h"

namespace trainyard {

/// Refuses tokens, the last input of a layer, that are not those of the sequence x [N, T, D].
Status check_tokens_of(const LayerBuilder& b, const ResolvedLayer& layer, TensorId x,
                       TensorId tokens);
/// Returns the lengths of rows of tokens, I32 [N]. All layers that read the same tokens share the
/// node that computes them; `layer` is the one that adds it.
Result<TensorId> sequence_lengths(LayerBuilder& b, const ResolvedLayer& layer, TensorId tokens);
/// Returns the attribute `padding_id` of nodes that read tokens: the dataset's padding. Empty if
/// that is 0, the default.
Attributes padding_attribute(const LayerBuilder& b);

}  // namespace trainyard
