#include "src/onnx/import_table.h"

#include <algorithm>
#include <numeric>

#include "src/base/check.h"
#include "src/base/text.h"

namespace trainyard::onnx {

// Longest list of equal numbers that is expanded to indices or sizes.
constexpr int64_t kListMax = 1 << 16;

// --- attributes ---

int64_t NodeImport::get_int(std::string_view name, int64_t fallback) const {
  const AttributeProto* a = node_.find(name);
  return a == nullptr ? fallback : a->i;
}

double NodeImport::get_float(std::string_view name, double fallback) const {
  const AttributeProto* a = node_.find(name);
  return a == nullptr ? fallback : a->f;
}

std::string NodeImport::get_text(std::string_view name, std::string_view fallback) const {
  const AttributeProto* a = node_.find(name);
  return a == nullptr ? std::string(fallback) : a->s;
}

std::vector<int64_t> NodeImport::get_ints(std::string_view name,
                                          std::vector<int64_t> fallback) const {
  const AttributeProto* a = node_.find(name);
  return a == nullptr ? std::move(fallback) : a->ints;
}

// --- inputs ---

const Value& NodeImport::input(size_t i) const {
  TRAINYARD_CHECK(has_input(i), "an input that is left out");
  return *importer_.find(node_.inputs[i]);
}

const Constant* NodeImport::find_constant(size_t i) const {
  return has_input(i) ? std::get_if<Constant>(&input(i)) : nullptr;
}

Result<const Constant*> NodeImport::floats(size_t i, const char* what) const {
  const Constant* c = find_constant(i);
  if (c != nullptr && c->is_float && !has_batch(c->dims)) return c;
  return refuse(std::string(what) +
                (has_input(i) ? " is not a constant of numbers" : " is missing"));
}

Result<std::vector<Extent>> NodeImport::extents(size_t i, const char* what) const {
  const Constant* c = find_constant(i);
  if (c == nullptr || c->is_float || c->dims.size() > 1) {
    return refuse(std::string(what) +
                  (has_input(i) ? " is not a constant list of whole numbers" : " is missing"));
  }
  if (!c->is_splat && !has_batch(c->dims)) return *c->ints;
  if (has_batch(c->dims) || c->elements() > kListMax) {
    return refuse(std::string(what) + " has an open or a very large length");
  }
  return std::vector<Extent>(static_cast<size_t>(c->elements()), c->ints->front());
}

Result<std::vector<int64_t>> NodeImport::ints(size_t i, const char* what) const {
  ASSIGN_OR_RETURN(const std::vector<Extent> all, extents(i, what));
  if (has_batch(all))
    return refuse(std::string(what) + " " + to_string(all) + " includes the batch");
  return counts_of(all);
}

Result<double> NodeImport::number(size_t i, const char* what) const {
  const Constant* c = find_constant(i);
  if (c == nullptr || c->stored() != 1 || (!c->is_float && c->ints->front().batch)) {
    return refuse(std::string(what) +
                  (has_input(i) ? " is not a single constant number" : " is missing"));
  }
  if (c->origins) return refuse(std::string(what) + " is a parameter, expected a fixed number");
  return c->is_float ? static_cast<double>(c->floats->front())
                     : static_cast<double>(c->ints->front().count);
}

Result<std::optional<std::vector<int64_t>>> NodeImport::ints_of(std::string_view attribute,
                                                                size_t i) const {
  std::optional<std::vector<int64_t>> given;
  if (has(attribute)) given = get_ints(attribute);
  if (has_input(i)) {
    ASSIGN_OR_RETURN(given, ints(i, std::string(attribute).c_str()));
  }
  return given;
}

Result<View> NodeImport::view(size_t i) {
  if (!has_input(i)) return refuse("input " + std::to_string(i) + " is missing");
  const Value& value = input(i);
  if (const auto* view = std::get_if<View>(&value)) return *view;
  return importer_.to_view(std::get<Constant>(value));
}

Result<int64_t> NodeImport::axis(int64_t given, int64_t rank) const {
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis >= 0 && axis < rank) return axis;
  return refuse("axis " + std::to_string(given) + " is out of range for a value with " +
                std::to_string(rank) + " dimensions");
}

Result<std::vector<int64_t>> NodeImport::axes(const std::vector<int64_t>& given,
                                              int64_t rank) const {
  std::vector<int64_t> all;
  for (const int64_t a : given) {
    ASSIGN_OR_RETURN(const int64_t one, axis(a, rank));
    if (std::ranges::find(all, one) != all.end()) return refuse("axes has a duplicate");
    all.push_back(one);
  }
  return all;
}

// --- outputs ---

bool NodeImport::wants_output(size_t i) const {
  return i < node_.outputs.size() && !node_.outputs[i].empty() &&
         importer_.is_read(node_.outputs[i]);
}

Status NodeImport::give(Value value, size_t output) {
  if (output < node_.outputs.size()) importer_.define(node_.outputs[output], std::move(value));
  return {};
}

Status NodeImport::give(Result<View> view, size_t output) {
  if (!view.ok()) return std::move(view).error();
  return give(Value(std::move(view).value()), output);
}

// --- the table ---

const std::vector<ImportRow>& import_rows() {
  static const std::vector<ImportRow> rows = [] {
    std::vector<ImportRow> all;
    for (const auto family :
         {constant_imports, selection_imports, elementwise_imports, image_imports, norm_imports,
          shape_imports, sequence_imports, split_imports, reduction_imports, einsum_imports}) {
      for (ImportRow& row : family()) all.push_back(std::move(row));
    }
    std::ranges::sort(all, {}, &ImportRow::op);
    return all;
  }();
  return rows;
}

const ImportRow* find_import_row(std::string_view op) {
  const auto& rows = import_rows();
  const auto it = std::ranges::lower_bound(rows, op, {}, &ImportRow::op);
  return it != rows.end() && it->op == op ? &*it : nullptr;
}

Status check_node_attributes(const NodeProto& node, const ImportRow& row) {
  for (const AttributeProto& a : node.attributes) {
    const auto known = std::ranges::find(row.attributes, a.name, &AttributeSpec::name);
    if (known == row.attributes.end()) {
      return unsupported_node(node, "attribute " + quoted_value(a.name) + " is not supported");
    }
    const bool has_value = known->type != AttributeSpec::kTensor || a.tensor != nullptr;
    if (a.type != known->type || !has_value || a.is_graph) {
      return unsupported_node(node, "attribute " + quoted_value(a.name) + " has type " +
                                        std::to_string(a.type) + ", expected " +
                                        std::to_string(known->type));
    }
  }
  return {};
}

std::string import_table_markdown() {
  std::string text =
      "| ONNX | imported as | from opset | not supported |\n| --- | --- | --- | --- |\n";
  for (const ImportRow& row : import_rows()) {
    const int64_t since = std::max(row.since, kOpsetMin);
    text += "| " + std::string(row.op) + " | " + std::string(row.becomes) + " | " +
            std::to_string(since) + " | " + std::string(row.limits) + " |\n";
  }
  return text;
}

}  // namespace trainyard::onnx
