// src/models/blocks.h: named blocks of a layer list, written out where they are used.
//
//   blocks:  basic(channels, stride = 1) = conv1, bn1, relu1, ...      each defined once
//   layers:  use basic with channels = 64, repeated twice, named "layer1"
//   becomes  layer1/0/conv1, layer1/0/bn1, ..., layer1/1/conv1, ...
//
// A block sees its own layers, its inputs and its parameters, nothing around it. It may use blocks
// that are defined before it, so no block can contain itself.
#pragma once

#include <vector>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

/// The op of a layer that uses a block.
constexpr const char* kUseOp = "Use";

bool uses_blocks(const ModelSpec& spec);

/// The layers of `spec` with every block written out. All names and origins are filled in. Problems
/// of the blocks and their uses come all at once; those of the layers inside are resolve_layers'.
/// Refuses more than kLayersMax layers before it makes one.
Result<std::vector<LayerSpec>> expand_blocks(const ModelSpec& spec);

}  // namespace trainyard
