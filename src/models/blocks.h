// src/models/blocks.h: named blocks of layers, which are expanded where a layer list uses them.
//
//   blocks:  basic(channels, stride = 1) = conv1, bn1, relu1, ...      each defined once
//   layers:  use basic with channels = 64, repeated twice, named "layer1"
//   becomes  layer1/0/conv1, layer1/0/bn1, ..., layer1/1/conv1, ...
//
// The layers of a block can refer only to the block's own layers, inputs and parameters. A block
// may use only blocks that are defined before it, so no block can contain itself.
#pragma once

#include <vector>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

/// The op of a layer that uses a block.
constexpr const char* kUseOp = "Use";

bool uses_blocks(const ModelSpec& spec);

/// Returns the layers of `spec` with every block expanded; all names and origins are set. Reports
/// all problems of the blocks and their uses together; resolve_layers checks the layers themselves.
/// Refuses an expansion of more than kLayersMax layers before it creates any.
Result<std::vector<LayerSpec>> expand_blocks(const ModelSpec& spec);

}  // namespace trainyard
