// src/onnx/importer.h: an ONNX graph while it is converted: the layers and values so far, and the
// operations with which the functions of import_table.h add to them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/models/network.h"
#include "src/onnx/exported_kinds.h"
#include "src/onnx/import_model.h"
#include "src/onnx/import_value.h"
#include "src/onnx/trained_parameters.h"

namespace trainyard::onnx {

constexpr int64_t kOpsetMin = 7, kOpsetMax = 22;
/// Limits of the elements of one computed constant, and of all together. Initializers may have
/// more, since they are in the file anyway.
constexpr int64_t kFoldedElementsMax = int64_t{1} << 24;
constexpr int64_t kFoldedSumMax = int64_t{1} << 27;

Error unsupported_node(const NodeProto& node, const std::string& what);

class Importer {
 public:
  static Result<ImportedModel> run(const OnnxFile& file, const ImportOptions& options);

  // --- layers ---

  /// Appends a layer and returns its name: `hint` if it is free, else a name derived from the op.
  Result<std::string> add_layer(std::string_view op, Attributes attributes,
                                std::vector<std::string> inputs, const std::string& hint = {});
  /// Sets, or replaces, the values of "<layer>.<suffix>".
  void set_weight(const std::string& layer, std::string_view suffix, Numbers numbers);
  /// Returns the sizes of a layer's output, without the batch.
  std::vector<int64_t> sizes_of(const std::string& layer) const;
  bool has_batch(const std::string& layer) { return network_->has_batch(layer); }
  bool is_tokens(const std::string& layer) const;
  /// Returns the name for a layer with this weight, from the initializer's name: "conv1.weight" ->
  /// "conv1".
  static std::string name_hint(const Constant& weight);
  /// Returns the linear layer or embedding whose "weight" is exactly this initializer; "" if there
  /// is none.
  std::string layer_to_tie(const std::string& initializer) const;
  void remember_weight(const std::string& initializer, const std::string& layer);
  /// Returns true if several nodes read this trained constant, so that it must become a layer of
  /// its own.
  bool is_shared(const Constant& c) const;
  /// Returns true if a layer may have its own copy of this bias. In a file that does not name its
  /// parameters, nodes read the same bias because the exporter joined biases of equal numbers.
  bool may_copy(const Constant& c) const { return !names_parameters() || !is_shared(c); }
  /// Returns true if the constant is fixed zeros, which have no effect as a bias. If the file does
  /// not name its parameters, an initializer may be trained and never counts as fixed.
  bool is_no_bias(const Constant& c) const;
  /// Returns true if the file says which of its constants are trained (trained_parameters.h).
  bool names_parameters() const { return trained_.has_value(); }

  // --- views ---

  /// Returns a layer with the axes [batch, groups[0], groups[1], ...], where each group is the
  /// product of its atoms. Every atom but the batch must be in exactly one group. Adds the layers
  /// that this takes.
  Result<std::string> arrange(const View& view, const std::vector<std::vector<int>>& groups);

  /// A view whose layer has the batch as its first axis, and then, for each dimension in order, one
  /// axis per run of adjacent atoms. With `keep_ones`, dimensions of size 1 have an axis too.
  struct Canonical {
    std::string layer;
    View view;
    std::vector<int64_t> axis;  // the layer's axis of each dimension; -1 if it has none or several,
                                // or includes the batch
  };
  Result<Canonical> canonical(const View& view, bool keep_ones = false);
  /// Turns a constant into a layer, a trained one if the model trains it.
  Result<View> to_view(const Constant& given);

  // --- operations that several rows use ---

  /// Returns a binary layer (Add, Mul, ...) with broadcasting.
  Result<View> binary(std::string_view op, const Value& first, const Value& second);
  Result<View> unary(std::string_view op, Attributes attributes, const View& x);
  /// Adds a layer for x w^T + bias over the last dimension. `weight` is [units, features]; `bias`
  /// may be null.
  Result<View> linear(const View& x, const Constant& weight, const Constant* bias);
  Result<View> mat_mul(const Value& a, const Value& b);
  /// Returns the elements of `x` with other sizes, given as for ONNX's Reshape but without 0 and
  /// -1.
  Result<View> reshape(View x, const std::vector<Extent>& dims);

  // --- the graph ---

  const OnnxFile& file() const { return file_; }
  int64_t opset() const { return file_.opset(); }
  /// Returns the batch size that the file fixes; nothing if it is open.
  std::optional<int64_t> fixed_batch() const { return fixed_batch_; }
  const Value* find(const std::string& name) const;
  void define(const std::string& name, Value value);
  /// Returns the nodes that read a value.
  std::vector<const NodeProto*> readers_of(const std::string& name) const;
  /// Returns the only node that reads a value; null if several nodes read it or it is the output.
  const NodeProto* only_reader(const std::string& name) const;
  /// Returns the node that computes a value; null for inputs and initializers.
  const NodeProto* producer_of(const std::string& value) const;
  bool is_read(const std::string& name) const {
    return name == output_value_ || readers_.contains(name);
  }
  /// Skips a node whose output has already been defined by the import of another node.
  void mark_done(const NodeProto& node) { done_.insert(&node); }
  /// Declares that `node`, the only reader of its input, may scale or shift the channels of
  /// `layer`, whose own weight and bias are still ones and zeros.
  void expect_affine(const std::string& layer, const NodeProto& node) { affine_[&node] = layer; }
  const std::string* expected_affine(const NodeProto& node) const;
  void note(std::string sentence);
  Result<Constant> decode(const TensorProto& tensor) const;

 private:
  Importer(const OnnxFile& file, const ImportOptions& options) : file_(file), options_(options) {}

  Status choose_output();
  Status choose_nodes();  // selects the nodes on which the output depends
  Status check_ops() const;
  Status define_initializers();
  /// Returns true if an initializer is a parameter, as far as the file tells.
  bool is_parameter(const TensorProto& tensor, const Constant& constant) const;
  void note_fixed_layers();
  Result<ValueProto> choose_input() const;
  Status define_input();
  Status import_nodes();
  /// Refuses the constants that `node` has defined, if they have too many elements or dimensions.
  Status count_constants(const NodeProto& node);
  Status finish_output();
  Result<ImportedModel> result();
  /// Sets the model's weights and its rules for frozen parameters.
  Status take_weights(const Network& network);
  bool may_fold(const NodeProto& node) const;
  std::string identity_of(const Constant& c) const;

  Result<std::string> constant_layer(const Constant& c, const std::vector<int64_t>& shape,
                                     Numbers numbers);
  struct Axes;
  Result<std::string> arrange_operand(const Value& operand, const View& view, const Axes& axes,
                                      bool is_first);
  /// Returns the layer's axis to which each atom belongs; 0 for atom 0, the batch.
  std::vector<int> axis_of_atoms(const View& view) const;
  std::string free_name(const std::string& wanted, std::string_view op);

  const OnnxFile& file_;
  const ImportOptions& options_;

  const NodeProto* source_ = nullptr;  // the last node of this program's own preprocessing
  std::string input_value_;            // the value that becomes the model's input
  std::string output_value_;
  std::vector<const NodeProto*> nodes_;
  std::set<const NodeProto*> done_;
  std::map<const NodeProto*, std::string> affine_;
  std::map<std::string, const NodeProto*> producers_;
  std::map<std::string, std::vector<const NodeProto*>> readers_;
  std::map<std::string, Value> values_;
  std::optional<int64_t> fixed_batch_;
  std::optional<TrainedParameters> trained_;
  std::optional<ExportedKinds> kinds_;
  std::set<std::string> fixed_layers_;  // parameter layers of numbers that are not trained
  int64_t folded_sum_ = 0;

  std::unique_ptr<ModelInterface> interface_;
  std::unique_ptr<BuildOptions> build_options_;
  std::optional<Network> network_;
  std::vector<LayerSpec> layers_;
  std::map<std::string, Numbers> weights_;
  std::set<std::string> names_;
  std::map<std::string, int> counters_;
  std::map<std::string, std::string> arranged_;  // layers by the arrangement that was requested
  std::map<std::string, std::string> weight_layers_;
  ImportedModel model_;
};

}  // namespace trainyard::onnx
