// src/onnx/graph_writer.h: an ONNX graph under construction: nodes, initializers, inputs, outputs.
//
// Values are known by name. Names of the model's own tensors are what its layers are called; what
// only ONNX needs is called "<node>:<what>", and no layer's name has a colon.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/graph/attributes.h"
#include "src/onnx/protobuf_message.h"
#include "src/tensor/shape.h"

namespace trainyard::onnx {

// The operator set that the files ask for, and the version of the file format that came with it.
// Opset 19 has all that is needed in one node or a few, and runtimes since the middle of 2023 know
// it.
constexpr int64_t kOpset = 19;
constexpr int64_t kIrVersion = 9;
// And that of the classical operators, for texts: LabelEncoder.
constexpr const char* kMlDomain = "ai.onnx.ml";
constexpr int64_t kMlOpset = 3;

/// A dimension of an input or output: a size, or kBatch, which is written as "N".
constexpr int64_t kBatch = -1;

class GraphWriter {
 public:
  /// A node with one output, whose name it returns; and one with several. A left-out operand in
  /// the middle is "".
  std::string add_node(std::string_view op, std::vector<std::string> inputs, std::string output,
                       const Attributes& attributes = {});
  void add_node_with_outputs(std::string_view op, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs,
                             const Attributes& attributes = {});

  /// Borrows `bytes` until the graph has been written.
  void add_initializer(const std::string& name, const TensorType& type,
                       std::span<const std::byte> bytes);
  /// Constants, which are kept once for each value. A list is I64 of rank 1, a number of rank 0.
  std::string constant(const std::vector<int64_t>& values);
  std::string constant(float value);
  std::string constant(int64_t value);
  /// The size of axis 0 of a value, I64 [1]: one node for each value that is asked about.
  std::string batch_of(const std::string& value);
  /// Numbers in double, under a name of their own.
  void add_doubles(const std::string& name, Shape shape, const std::vector<double>& values);

  void add_input(const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                 const std::string& description);
  void add_text_input(const std::string& name, const std::vector<int64_t>& dims,
                      const std::string& description);
  void add_output(const std::string& name, const std::vector<int64_t>& dims,
                  const std::string& description);
  /// LabelEncoder of ai.onnx.ml: 1 for the first of `names`, 2 for the second; 0 for all else.
  std::string add_codes(const std::string& texts, const std::vector<std::string>& names,
                        const std::string& output);

  /// Whether an initializer or the output of a node is called so.
  bool has_value(const std::string& name) const { return values_.contains(name); }
  /// The types of all nodes so far.
  const std::set<std::string, std::less<>>& ops() const { return ops_; }

  /// The GraphProto. The writer is used up.
  ProtobufMessage finish(const std::string& name) &&;

 private:
  std::string add_constant(const std::string& what, const TensorType& type,
                           const std::string& bytes);
  void add_owned(const std::string& name, const TensorType& type, const std::string& bytes);

  std::vector<ProtobufMessage> nodes_, initializers_, inputs_, outputs_;
  std::set<std::string> shared_;  // names of constants and sizes, which tell all about them
  std::set<std::string> values_;
  std::set<std::string, std::less<>> ops_;
};

/// ONNX's number of an element type.
int64_t data_type_of(DType dtype);

}  // namespace trainyard::onnx
