// src/onnx/op_table.h: how each op of a model is written as ONNX nodes.
//
// One row for each op that a layer or preset can put into a graph for inference; most are one node
// of the same name. docs/onnx.md has this table, and a test holds the two together.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/onnx/graph_writer.h"

namespace trainyard::onnx {

/// What the row of an op works with: the node that it writes and the graph that it writes to.
class NodeWriter {
 public:
  /// `names`: of the values, by tensor. `any_batch`: the attribute `shape` of a Reshape or Expand,
  /// with kBatch where it holds the batch. `source`: an input of the file, whose axis 0 is the
  /// batch.
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
  /// The name of a value I64 [1]: how many samples there are.
  std::string batch() { return onnx_.batch_of(source_); }

  bool has_input(size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNoTensor; }
  /// Names of operands; "" where one is left out.
  std::string input(size_t i) const { return has_input(i) ? name(node_.inputs[i]) : ""; }
  std::vector<std::string> inputs() const;
  std::string output(size_t i = 0) const { return name(node_.outputs.at(i)); }
  std::vector<std::string> outputs() const;
  /// The batch in it is not that of the file: only other axes may be looked at.
  const Shape& shape(size_t i) const { return graph_.tensor(node_.inputs.at(i)).type.shape; }
  /// A name for a value in between.
  std::string between(std::string_view what) const { return node_.name + ":" + std::string(what); }

  GraphWriter& onnx() { return onnx_; }
  /// A node that computes the op's output; and one that computes between(what), returned.
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
  std::string_view op;                      // of this engine
  std::vector<std::string_view> onnx = {};  // the ONNX operators it may become; empty: its own name
  void (*write)(NodeWriter& w) = nullptr;   // null: one node with the same operands
  /// For a node of its own: attributes that are numbers, with the op's defaults.
  std::vector<std::pair<std::string_view, double>> numbers = {};
};

const std::vector<OpRow>& op_rows();
/// Null if the op has no ONNX form.
const OpRow* find_op_row(std::string_view op);
/// Refuses a graph with ops that have no ONNX form, and names all of them.
Status check_ops(const Graph& graph);
/// By the row of the node's op, which there must be.
void write_node(NodeWriter& w);

/// The table of docs/onnx.md.
std::string op_table_markdown();

// The families.
std::vector<OpRow> elementwise_rows();
std::vector<OpRow> image_rows();
std::vector<OpRow> shape_rows();
std::vector<OpRow> sequence_rows();

}  // namespace trainyard::onnx
