// src/onnx/import_table.h: maps each ONNX operation to layers. There is one row per operation; most
// become a layer of the same name. docs/onnx.md contains this table, and a test compares the two.
//
// If the meaning depends on the opset, the row's function checks node.opset(). If an argument moved
// from an attribute to an input, NodeImport::ints_of reads either.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/onnx/importer.h"

namespace trainyard::onnx {

/// A node, whose attributes its row has accepted, as passed to the row's function.
class NodeImport {
 public:
  NodeImport(Importer& importer, const NodeProto& node) : importer_(importer), node_(node) {}

  Importer& importer() { return importer_; }
  const NodeProto& node() const { return node_; }
  std::string_view op() const { return node_.op; }
  int64_t opset() const { return importer_.opset(); }
  std::optional<int64_t> fixed_batch() const { return importer_.fixed_batch(); }
  /// Returns ONNX_UNSUPPORTED about this node.
  Error refuse(const std::string& what) const { return unsupported_node(node_, what); }

  bool has(std::string_view attribute) const { return node_.find(attribute) != nullptr; }
  int64_t get_int(std::string_view name, int64_t fallback) const;
  double get_float(std::string_view name, double fallback) const;
  std::string get_text(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> get_ints(std::string_view name, std::vector<int64_t> fallback = {}) const;

  size_t input_count() const { return node_.inputs.size(); }
  bool has_input(size_t i) const { return i < node_.inputs.size() && !node_.inputs[i].empty(); }
  const Value& input(size_t i) const;  // a fault if the input is left out
  std::vector<Extent> dims(size_t i) const { return dims_of(input(i)); }
  /// Returns a value of the graph; null if it has not been computed yet.
  const Value* find(const std::string& name) const { return importer_.find(name); }
  bool may_copy(const Constant& c) const { return importer_.may_copy(c); }
  const Constant* find_constant(size_t i) const;  // null if the input is left out or not constant
  /// Returns a constant input, of floats or whole numbers. `what` names it in the error.
  Result<const Constant*> floats(size_t i, const char* what) const;
  Result<std::vector<Extent>> extents(size_t i, const char* what) const;
  Result<std::vector<int64_t>> ints(size_t i, const char* what) const;
  /// Returns one constant number of either type.
  Result<double> number(size_t i, const char* what) const;
  /// Returns the values of an attribute or else of input i; nothing if neither is given.
  Result<std::optional<std::vector<int64_t>>> ints_of(std::string_view attribute, size_t i) const;
  /// Returns the input as a view of a layer; a constant becomes a layer.
  Result<View> view(size_t i);
  /// Returns the axis counted from the front. Refuses an axis that a value of `rank` does not have.
  Result<int64_t> axis(int64_t given, int64_t rank) const;
  Result<std::vector<int64_t>> axes(const std::vector<int64_t>& given, int64_t rank) const;

  bool wants_output(size_t i) const;
  Status give(Value value, size_t output = 0);
  Status give(View view, size_t output = 0) { return give(Value(std::move(view)), output); }
  Status give(Result<View> view, size_t output = 0);

 private:
  Importer& importer_;
  const NodeProto& node_;
};

struct AttributeSpec {
  enum Type : uint8_t { kFloat = 1, kInt = 2, kText = 3, kTensor = 4, kFloats = 6, kInts = 7 };
  std::string_view name;
  Type type = kInt;
};

struct ImportRow {
  std::string_view op;
  int64_t since = 1;  // the first opset with this operation; 1 if that is below kOpsetMin
  std::string_view becomes = {};  // the layers, or the effect, for the table in the documentation
  std::string_view limits = {};   // the uses that are refused
  std::vector<AttributeSpec> attributes = {};
  /// Null: all inputs must be constant.
  Status (*import)(NodeImport& n) = nullptr;
  /// Called if all inputs are constant. Defines the outputs, or returns false to have `import`
  /// called.
  Result<bool> (*fold)(NodeImport& n) = nullptr;
};

const std::vector<ImportRow>& import_rows();
const ImportRow* find_import_row(std::string_view op);
/// Refuses attributes that the row does not list, or that have another type.
Status check_node_attributes(const NodeProto& node, const ImportRow& row);

/// Returns the table of docs/onnx.md.
std::string import_table_markdown();

// Returns the rows of each family of operations.
std::vector<ImportRow> constant_imports();
std::vector<ImportRow> selection_imports();
std::vector<ImportRow> elementwise_imports();
std::vector<ImportRow> image_imports();
std::vector<ImportRow> norm_imports();
std::vector<ImportRow> shape_imports();
std::vector<ImportRow> sequence_imports();
std::vector<ImportRow> split_imports();
std::vector<ImportRow> reduction_imports();
std::vector<ImportRow> einsum_imports();

// Functions that fold constants, several of them for operations that also become layers.
Result<bool> fold_movement(NodeImport& n);
Result<bool> fold_arithmetic(NodeImport& n);
Result<bool> fold_unary(NodeImport& n);
Result<bool> fold_not(NodeImport& n);
Result<bool> fold_reduce(NodeImport& n);
Result<bool> fold_mat_mul(NodeImport& n);
Result<bool> fold_is(NodeImport& n);
Result<bool> fold_clip(NodeImport& n);
Result<bool> fold_cast(NodeImport& n);
/// Converts an input of `n` to the element type `to`.
Result<Constant> cast_constant(const NodeImport& n, Constant c, int64_t to);
Result<bool> fold_where(NodeImport& n);

/// Imports a Greater that depends on the model's input, which must be part of a softplus.
Status import_greater(NodeImport& n);

/// Imports a Gather by constant indices, and a GatherND, whose indices must be constant.
Status import_gather_of_constants(NodeImport& n);
Status import_gather_nd(NodeImport& n);

/// If the layer before this Mul or Add can take over its constant, does so, defines the output and
/// returns true.
Result<bool> absorb_affine(NodeImport& n);

/// The arguments of a Slice, which were attributes before opset 10.
struct SliceArguments {
  std::vector<int64_t> starts, axes, steps;
  std::vector<Extent> ends;
  /// Returns true if entry i takes the whole of its dimension, whose size is `size`.
  bool takes_all(size_t i, const Extent& size) const;
};
Result<SliceArguments> slice_arguments(NodeImport& n, int64_t rank);

/// Returns the view of a layer whose axes are those of a canonical operand with other sizes.
View resized(const Importer::Canonical& c, const std::string& layer,
             const std::vector<int64_t>& sizes);
/// Returns element `index` along an axis, which is removed; or several elements.
Result<View> take_index(NodeImport& n, const View& x, int64_t axis, int64_t index);
Result<View> take_list(NodeImport& n, const View& x, int64_t axis,
                       const std::vector<int64_t>& indices);
/// Returns a view of `x` whose dimensions of size 1 are repeated to `wanted`.
Result<View> expanded(NodeImport& n, View x, std::vector<Extent> wanted);

/// Returns the target shape of a Reshape, with 0 and -1 resolved.
Result<std::vector<Extent>> reshape_target(NodeImport& n, const std::vector<Extent>& from,
                                           const std::vector<Extent>& shape);

}  // namespace trainyard::onnx
