// tests/onnx/import_support.h: runs an imported model as a graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/protobuf_message.h"
#include "src/checkpoint/safetensors.h"
#include "src/onnx/import_model.h"
#include "src/runtime/backend.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

/// Returns the model's outputs for `batch` samples, row-major, with the batch as the first
/// dimension.
std::vector<double> run_imported(const onnx::ImportedModel& model, int64_t batch,
                                 const std::vector<double>& input, Backend& backend);

/// Transposes `values`, whose sizes are `dims`, so that axis `from` becomes the first.
std::vector<double> axis_to_front(const std::vector<double>& values,
                                  const std::vector<int64_t>& dims, int64_t from);

/// A node of a minimal file of opset 17 with an input "x" [N, 2] and one output.
struct FileNode {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, int64_t> attributes = {};
};
/// Returns an initializer of floats; `raw` contains their bytes.
ProtobufMessage floats(const std::string& name, const std::vector<int64_t>& dims,
                       const std::string& raw);
std::string model_of(const std::vector<FileNode>& nodes, std::vector<ProtobufMessage> tensors = {},
                     const std::string& output = "y",
                     const std::map<std::string, std::string>& metadata = {});

/// Returns the numbers of a tensor of a golden file.
std::vector<double> numbers_of(const TensorView& tensor);

}  // namespace trainyard::testing
