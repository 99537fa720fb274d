// src/onnx/op_table.h: maps each op of a model to ONNX nodes.
//
// There is one row per op that can occur in an inference graph; most are one node of the same name.
// docs/onnx.md contains this table, and a test compares the two.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/onnx/graph_writer.h"

namespace trainyard::onnx {

/// Passed to the function of a row: the node to write, and the graph to write it to.
class NodeWriter {
 public:
  /// `names`: the names of the values, by tensor. `any_batch`: the attribute `shape` of a Reshape
  /// or Expand, with kBatch in place of the batch. `source`: an input of the file, whose axis 0 is
  /// the batch.
  NodeWriter(GraphWriter& onnx, const Graph& graph, const Node& node,
             const std::vector<std::string>& names, std::vector<int64_t> any_batch,
             std::string source)
      : onnx_(onnx),
        graph_(graph),
        node_(node),
        names_(names),
        any_batch_(std::move(any_batch)),
        source_(std::move(source)) {}

  std::string_view op() const { return node_.op->type(); }
  const Attributes& attributes() const { return node_.attributes; }
  const std::vector<int64_t>& any_batch() const { return any_batch_; }
  /// Returns the name of a value I64 [1] with the number of samples.
  std::string batch() { return onnx_.batch_of(source_); }

  bool has_input(size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNoTensor; }
  /// These return the names of operands; "" for an operand that is left out.
  std::string input(size_t i) const { return has_input(i) ? name(node_.inputs[i]) : ""; }
  std::vector<std::string> inputs() const;
  std::string output(size_t i = 0) const { return name(node_.outputs.at(i)); }
  std::vector<std::string> outputs() const;
  /// Axis 0 must not be used if it is the batch, since the batch size of the file is unknown.
  const Shape& shape(size_t i) const { return graph_.tensor(node_.inputs.at(i)).type.shape; }
  /// Returns a name for an intermediate value.
  std::string between(std::string_view what) const { return node_.name + ":" + std::string(what); }

  GraphWriter& onnx() { return onnx_; }
  /// These add a node that computes the op's output, or one that computes between(what), which is
  /// returned.
  void put(std::string_view op, std::vector<std::string> inputs, const Attributes& a = {}) {
    onnx_.add_node(op, std::move(inputs), output(), a);
  }
  std::string put_between(std::string_view what, std::string_view op,
                          std::vector<std::string> inputs, const Attributes& a = {}) {
    return onnx_.add_node(op, std::move(inputs), between(what), a);
  }

 private:
  const std::string& name(TensorId id) const { return names_.at(static_cast<size_t>(id)); }

  GraphWriter& onnx_;
  const Graph& graph_;
  const Node& node_;
  const std::vector<std::string>& names_;
  std::vector<int64_t> any_batch_;
  std::string source_;
};

struct OpRow {
  std::string_view op;  // the op's type in this program
  // The ONNX operators that it becomes; empty: the operator of the same name.
  std::vector<std::string_view> onnx = {};
  void (*write)(NodeWriter& w) = nullptr;  // null: one node with the same operands
  /// If `write` is null: numeric attributes of the node, with the op's defaults.
  std::vector<std::pair<std::string_view, double>> numbers = {};
};

const std::vector<OpRow>& op_rows();
/// Returns null if the op has no ONNX form.
const OpRow* find_op_row(std::string_view op);
/// Refuses a graph with ops that have no ONNX form, and names all of them.
Status check_ops(const Graph& graph);
/// Writes a node as its op's row says. The op must have a row.
void write_node(NodeWriter& w);

/// Returns the table of docs/onnx.md.
std::string op_table_markdown();

// Returns the rows of each family of ops.
std::vector<OpRow> elementwise_rows();
std::vector<OpRow> image_rows();
std::vector<OpRow> shape_rows();
std::vector<OpRow> sequence_rows();
std::vector<OpRow> rotary_rows();

}  // namespace trainyard::onnx
