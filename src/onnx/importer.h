// src/onnx/importer.h: a graph on its way to a layer list: the layers so far, the values so far,
// and what the functions of import_table.h need to add to both.
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
#include "src/onnx/import_model.h"
#include "src/onnx/import_value.h"
#include "src/onnx/trained_parameters.h"

namespace trainyard::onnx {

constexpr int64_t kOpsetMin = 7, kOpsetMax = 22;
/// No constant is computed that has more elements, nor more in all of them together. Initializers
/// may have: they are in the file.
constexpr int64_t kFoldedElementsMax = int64_t{1} << 24;
constexpr int64_t kFoldedSumMax = int64_t{1} << 27;

Error unsupported_node(const NodeProto& node, const std::string& what);

class Importer {
 public:
  static Result<ImportedModel> run(const OnnxFile& file, const ImportOptions& options);

  // --- layers ---

  /// Appends a layer and returns its name: `hint` if that is free, else one made from the op.
  Result<std::string> add_layer(std::string_view op, Attributes attributes,
                                std::vector<std::string> inputs, const std::string& hint = {});
  /// The values of "<layer>.<suffix>", in place of those it may have.
  void set_weight(const std::string& layer, std::string_view suffix, Numbers numbers);
  /// The sizes of a layer's output behind the batch.
  std::vector<int64_t> sizes_of(const std::string& layer) const;
  bool has_batch(const std::string& layer) { return network_->has_batch(layer); }
  bool is_tokens(const std::string& layer) const;
  /// What a layer may be called whose weight is this initializer: "conv1.weight" -> "conv1".
  static std::string name_hint(const Constant& weight);
  /// The linear layer or embedding whose "weight" is this initializer, as it is; "" if there is
  /// none.
  std::string layer_to_tie(const std::string& initializer) const;
  void remember_weight(const std::string& initializer, const std::string& layer);
  /// True of a trained constant that several nodes read: it has to be a layer of its own.
  bool is_shared(const Constant& c) const;
  /// True of fixed zeros, which add nothing. Where the file does not name its parameters, an
  /// initializer may always be one.
  bool is_no_bias(const Constant& c) const;
  /// True if the file says which of its constants are trained (trained_parameters.h).
  bool names_parameters() const { return trained_.has_value(); }

  // --- views ---

  /// A layer with the axes [batch, groups[0], groups[1], ...], each the product of the atoms in it.
  /// Every atom but the batch is in one group. Adds what it takes to get there.
  Result<std::string> arrange(const View& view, const std::vector<std::vector<int>>& groups);

  /// A view whose layer has one axis for each run of atoms of each dimension, in their order, the
  /// batch in front. Dimensions of size 1 have an axis where `keep_ones` says so.
  struct Canonical {
    std::string layer;
    View view;
    std::vector<int64_t> axis;  // of the layer, of each dimension; -1: none, or several, or batch
  };
  Result<Canonical> canonical(const View& view, bool keep_ones = false);
  /// A constant as a layer: trained where a model learns it.
  Result<View> to_view(const Constant& constant);

  // --- operations that several rows are made of ---

  /// A binary layer (Add, Mul, ...) with broadcasting.
  Result<View> binary(std::string_view op, const Value& a, const Value& b);
  Result<View> unary(std::string_view op, Attributes attributes, const View& x);
  /// x w^T + bias over the last dimension; `weight` is [units, features].
  Result<View> linear(const View& x, const Constant& weight, const Constant* bias);
  Result<View> mat_mul(const Value& a, const Value& b);
  /// The same elements under other sizes; sizes as of ONNX's Reshape, without 0 and -1.
  Result<View> reshape(View x, const std::vector<Extent>& dims);

  // --- the graph ---

  const OnnxFile& file() const { return file_; }
  int64_t opset() const { return file_.opset(); }
  /// The batch that the file fixes; nothing where it is open.
  std::optional<int64_t> fixed_batch() const { return fixed_batch_; }
  const Value* find(const std::string& name) const;
  void define(const std::string& name, Value value);
  /// The only node that reads a value; null if there are several or it is an output.
  const NodeProto* only_reader(const std::string& name) const;
  /// The node that gives a value; null for inputs and initializers.
  const NodeProto* producer_of(const std::string& value) const;
  bool is_read(const std::string& name) const {
    return name == output_value_ || readers_.contains(name);
  }
  /// A node that another one has done the work of: its output is there already.
  void mark_done(const NodeProto& node) { done_.insert(&node); }
  /// The node may scale or shift the layer's channels in place of the layer's own weight or bias,
  /// which are ones or zeros: nothing else reads what it reads.
  void expect_affine(const std::string& layer, const NodeProto& node) { affine_[&node] = layer; }
  const std::string* expected_affine(const NodeProto& node) const;
  void note(std::string sentence);
  Result<Constant> decode(const TensorProto& tensor) const;

 private:
  Importer(const OnnxFile& file, const ImportOptions& options) : file_(file), options_(options) {}

  Status choose_output();
  Status choose_nodes();  // those that the output depends on
  Status check_ops() const;
  Status define_initializers();
  Result<ValueProto> choose_input() const;
  Status define_input();
  Status import_nodes();
  Status finish_output();
  Result<ImportedModel> result();
  /// Fills in the model's weights and frozen parameters.
  Status take_weights(const Network& network);
  bool may_fold(const NodeProto& node) const;
  std::string identity_of(const Constant& c) const;

  Result<std::string> constant_layer(const Constant& c, const std::vector<int64_t>& shape,
                                     Numbers numbers);
  struct Axes;
  Result<std::string> arrange_operand(const Value& operand, const View& view, const Axes& axes,
                                      bool is_first);
  /// The actual axis of the layer that each atom is part of; atom 0 is the batch's.
  std::vector<int> axis_of_atoms(const View& view) const;
  std::string free_name(const std::string& wanted, std::string_view op);

  const OnnxFile& file_;
  const ImportOptions& options_;

  const NodeProto* source_ = nullptr;  // the last node of our own preprocessing
  std::string input_value_;            // the value that the model's input is
  std::string output_value_;
  std::vector<const NodeProto*> nodes_;
  std::set<const NodeProto*> done_;
  std::map<const NodeProto*, std::string> affine_;
  std::map<std::string, const NodeProto*> producers_;
  std::map<std::string, std::vector<const NodeProto*>> readers_;
  std::map<std::string, Value> values_;
  std::optional<int64_t> fixed_batch_;
  std::optional<TrainedParameters> trained_;
  int64_t folded_sum_ = 0;

  std::unique_ptr<ModelInterface> interface_;
  std::unique_ptr<BuildOptions> build_options_;
  std::optional<Network> network_;
  std::vector<LayerSpec> layers_;
  std::map<std::string, Numbers> weights_;
  std::set<std::string> names_;
  std::map<std::string, int> counters_;
  std::map<std::string, std::string> arranged_;  // by what was asked for
  std::map<std::string, std::string> weight_layers_;
  ImportedModel model_;
};

}  // namespace trainyard::onnx
