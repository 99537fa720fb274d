#include "src/onnx/op_table.h"

#include <algorithm>
#include <map>

#include "src/base/check.h"

namespace trainyard::onnx {

std::vector<std::string> NodeWriter::inputs() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < node_.inputs.size(); ++i) all.push_back(input(i));
  return all;
}

std::vector<std::string> NodeWriter::outputs() const {
  std::vector<std::string> all;
  for (const TensorId id : node_.outputs) all.push_back(name(id));
  return all;
}

const std::vector<OpRow>& op_rows() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all;
    for (const auto family :
         {elementwise_rows, image_rows, shape_rows, sequence_rows, rotary_rows}) {
      for (OpRow& row : family()) {
        if (row.onnx.empty()) row.onnx = {row.op};
        all.push_back(std::move(row));
      }
    }
    std::ranges::sort(all, {}, &OpRow::op);
    return all;
  }();
  return rows;
}

const OpRow* find_op_row(std::string_view op) {
  const auto& rows = op_rows();
  const auto it = std::ranges::lower_bound(rows, op, {}, &OpRow::op);
  return it != rows.end() && it->op == op ? &*it : nullptr;
}

Status check_ops(const Graph& graph) {
  std::map<std::string_view, std::string> layers;  // names of layers, by op
  for (const Node& node : graph.nodes()) {
    if (find_op_row(node.op->type()) != nullptr) continue;
    std::string& names = layers[node.op->type()];
    names += (names.empty() ? "" : ", ") + node.name;
  }
  if (layers.empty()) return {};
  std::string all;
  for (const auto& [op, names] : layers) {
    all += (all.empty() ? "" : "; ") + std::string(op) + " (" + names + ")";
  }
  return make_error(ErrorCode::kFailedPrecondition, "ONNX_UNSUPPORTED",
                    "the model has operations without an ONNX form: " + all);
}

void write_node(NodeWriter& w) {
  const OpRow* row = find_op_row(w.op());
  TRAINYARD_CHECK(row != nullptr, "no ONNX form of " + std::string(w.op()));
  if (row->write != nullptr) return row->write(w);
  Attributes attributes;
  for (const auto& [name, fallback] : row->numbers) {
    attributes.set(std::string(name), w.attributes().get_float(name, fallback));
  }
  w.put(row->op, w.inputs(), attributes);
}

std::string op_table_markdown() {
  std::string text = "| operation | as ONNX |\n| --- | --- |\n";
  for (const OpRow& row : op_rows()) {
    text += "| " + std::string(row.op) + " | ";
    for (const std::string_view op : row.onnx) {
      if (op != row.onnx.front()) text += ", ";
      text += op;
    }
    text += " |\n";
  }
  return text;
}

}  // namespace trainyard::onnx
