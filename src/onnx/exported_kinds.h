// src/onnx/exported_kinds.h: which initializers of a file are parameters, and which are buffers or
// constants, as far as PyTorch's exporter tells.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "src/onnx/onnx_file.h"

namespace trainyard::onnx {

/// Since version 2.6, PyTorch notes in the metadata of a value whether it was a parameter, a buffer
/// or a constant of the module. Its optimizer replaces values that depend on constants alone, and
/// notes the names of the values from which it computed them.
class ExportedKinds {
 public:
  /// Returns nothing if the file does not tell.
  static std::optional<ExportedKinds> read(const GraphProto& graph);

  bool is_parameter(const std::string& initializer) const {
    return parameters_.contains(initializer);
  }

 private:
  std::set<std::string> parameters_;
};

}  // namespace trainyard::onnx
