// src/onnx/graph_writer.h: builds an ONNX graph: nodes, initializers, inputs, outputs.
//
// Values are identified by name. The model's own tensors keep their names. Values that only ONNX
// needs are named "<node>:<part>", which no layer's name can equal, since it has no colon.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/protobuf_message.h"
#include "src/graph/attributes.h"
#include "src/tensor/shape.h"

namespace trainyard::onnx {

// The operator set of the files, and the version of the file format that came with it. Opset 19 can
// express every op in one node or a few, and runtimes since the middle of 2023 support it.
constexpr int64_t kOpset = 19;
constexpr int64_t kIrVersion = 9;
// The domain and version of LabelEncoder, which encodes texts.
constexpr const char* kMlDomain = "ai.onnx.ml";
constexpr int64_t kMlOpset = 3;

/// In the dimensions of an input or output, kBatch stands for the batch size, which is written as
/// "N".
constexpr int64_t kBatch = -1;

class GraphWriter {
 public:
  /// These add a node with one output, whose name is returned, or with several. An operand that is
  /// left out before others is "".
  std::string add_node(std::string_view op, std::vector<std::string> inputs, std::string output,
                       const Attributes& attributes = {});
  void add_node_with_outputs(std::string_view op, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs,
                             const Attributes& attributes = {});

  /// Keeps a reference to `bytes` until the graph has been written.
  void add_initializer(const std::string& name, const TensorType& type,
                       std::span<const std::byte> bytes);
  /// These return the name of a constant; equal constants are stored once. A list is I64 of rank 1,
  /// a number has rank 0.
  std::string constant(const std::vector<int64_t>& values);
  std::string constant(float value);
  std::string constant(int64_t value);
  /// Returns the size of axis 0 of a value, I64 [1]. One node is added per value, at the first
  /// call.
  std::string batch_of(const std::string& value);
  /// These add a constant of F32 or F64 numbers under the given name.
  void add_floats(const std::string& name, Shape shape, const std::vector<float>& values);
  void add_doubles(const std::string& name, Shape shape, const std::vector<double>& values);

  void add_input(const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                 const std::string& description);
  void add_text_input(const std::string& name, const std::vector<int64_t>& dims,
                      const std::string& description);
  void add_output(const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                  const std::string& description);
  /// Adds a LabelEncoder of ai.onnx.ml: 1 for the first of `names`, 2 for the second and so on; 0
  /// for any other text.
  std::string add_codes(const std::string& texts, const std::vector<std::string>& names,
                        const std::string& output);

  /// Returns whether an initializer or the output of a node has this name.
  bool has_value(const std::string& name) const { return values_.contains(name); }
  /// Returns the ONNX operators of all nodes so far.
  const std::set<std::string, std::less<>>& ops() const { return ops_; }

  /// Returns the GraphProto. The writer must not be used afterwards.
  ProtobufMessage finish(const std::string& name) &&;

 private:
  std::string add_constant(const std::string& what, const TensorType& type,
                           const std::string& bytes);
  void add_owned(const std::string& name, const TensorType& type, const std::string& bytes);

  std::vector<ProtobufMessage> nodes_, initializers_, inputs_, outputs_;
  // Names of shared constants and sizes; a name determines the value.
  std::set<std::string> shared_;
  std::set<std::string> values_;
  std::set<std::string, std::less<>> ops_;
};

/// Returns ONNX's code of an element type.
int64_t data_type_of(DType dtype);

}  // namespace trainyard::onnx
