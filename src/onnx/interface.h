// src/onnx/interface.h: the inputs and outputs of an ONNX file. The file includes the
// preprocessing, so that users pass pixels and raw numbers and get their own classes and units.
//
//   images       image [N, C, H, W], U8 or F32 as the dataset's pixels are
//   tables       numeric F32 [N, columns], NaN where a value is missing; categorical F32 [N,
//                categories], the one-hot codes of all categorical columns side by side, or, where
//                the model embeds them, I64 [N, columns], 0 for missing and unknown, else 1 + the
//                category's index. Either may not be there.
//   text         tokens I64 [N, T]
//   raw rows     of a table, on request: each column by its name, F32 [N, 1] or texts [N, 1]
//
//   classes      logits and probabilities, both [N, K]
//   a number     prediction [N, 1], in the target's unit
//   next token   logits [N, T, V]
//
// Preprocessing and the conversion back to a number's unit are computed in double, as in training
// and predict.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/data/preprocessing.h"
#include "src/models/loss.h"
#include "src/onnx/graph_writer.h"

namespace trainyard::onnx {

/// Returns true for the names above, which no other value of the graph may have.
bool is_interface_name(std::string_view name);

struct InputNames {
  std::string source;  // an input of the file
  std::string value;   // the name of the model's input tensor in the file
};
/// Adds the inputs and the preprocessing nodes.
InputNames write_inputs(GraphWriter& onnx, const DatasetSchema& schema, const Preprocessing& p);
/// Adds the inputs and the preprocessing nodes for raw rows. ONNX_UNSUPPORTED for inputs that ONNX
/// cannot read (dates, and texts that become tokens), and for images, which are always raw.
Result<InputNames> write_raw_inputs(GraphWriter& onnx, const DatasetSchema& schema,
                                    const Preprocessing& p);

/// Adds the outputs, computed from `output`, the value of the model's output tensor.
void write_outputs(GraphWriter& onnx, const Objective& objective, const DatasetSchema& schema,
                   const Preprocessing& p, const std::string& output);

/// Returns the file's metadata_props: plain text, or JSON for structured values. docs/onnx.md lists
/// the keys.
std::map<std::string, std::string> interface_metadata(const Objective& objective,
                                                      const DatasetSchema& schema,
                                                      const Preprocessing& p, bool raw_rows);

}  // namespace trainyard::onnx
