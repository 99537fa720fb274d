// Imports a graph: selects the values that matter, the input and the output, and assembles the
// layer list. import_table.h imports single nodes; importer_layers.cc turns views into layers.
#include "src/onnx/importer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/glob.h"
#include "src/base/text.h"
#include "src/onnx/import_table.h"
#include "src/onnx/importer_axes.h"
#include "src/onnx/onnx_file.h"

namespace trainyard::onnx {
namespace {

// kImportBatch and kCheckBatch are arbitrary, but different. Imported layers must not depend on the
// batch size.
constexpr int64_t kImportBatch = 2;
constexpr int64_t kCheckBatch = 3;
constexpr size_t kNotesMax = 64;
constexpr size_t kConstantRankMax = 64;

Error unsupported_file(const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "ONNX_UNSUPPORTED", what);
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + quoted_value(name);
  return text;
}

const NodeProto* find_producer(const GraphProto& graph, std::string_view value) {
  for (const NodeProto& node : graph.nodes) {
    if (std::ranges::find(node.outputs, value) != node.outputs.end()) return &node;
  }
  return nullptr;
}

// --- files that this program has written (interface.h) ---

/// Returns the value that the model itself computes, before the nodes that convert it to the file's
/// output.
std::string own_output(const GraphProto& graph, const std::string& output) {
  const auto input_of = [&](std::string_view value, bool last) -> std::string {
    const NodeProto* node = find_producer(graph, value);
    if (node == nullptr || node->inputs.empty()) return "";
    return last ? node->inputs.back() : node->inputs.front();
  };
  if (output == "prediction") return input_of("prediction:double", false);
  if (output == "reconstruction") {
    const std::string value = input_of("reconstruction:input", false);
    return value == "reconstruction:share" ? input_of(value, false) : value;
  }
  const std::string value = input_of("logits", false);
  return value == "logits:both" ? input_of(value, true) : value;
}

}  // namespace

Error unsupported_node(const NodeProto& node, const std::string& what) {
  return unsupported_file(node.describe() + ": " + what);
}

void Importer::note(std::string sentence) {
  if (model_.notes.size() < kNotesMax &&
      std::ranges::find(model_.notes, sentence) == model_.notes.end()) {
    model_.notes.push_back(std::move(sentence));
  }
}

const Value* Importer::find(const std::string& name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

void Importer::define(const std::string& name, Value value) {
  if (!name.empty()) values_.insert_or_assign(name, std::move(value));
}

const NodeProto* Importer::only_reader(const std::string& name) const {
  const auto it = readers_.find(name);
  return it != readers_.end() && it->second.size() == 1 && name != output_value_
             ? it->second.front()
             : nullptr;
}

std::vector<const NodeProto*> Importer::readers_of(const std::string& name) const {
  const auto it = readers_.find(name);
  return it == readers_.end() ? std::vector<const NodeProto*>() : it->second;
}

const std::string* Importer::expected_affine(const NodeProto& node) const {
  const auto it = affine_.find(&node);
  return it == affine_.end() ? nullptr : &it->second;
}

const NodeProto* Importer::producer_of(const std::string& value) const {
  const auto it = producers_.find(value);
  return it == producers_.end() ? nullptr : it->second;
}

Result<Constant> Importer::decode(const TensorProto& tensor) const {
  ASSIGN_OR_RETURN(TensorValues values, file_.decode_tensor(tensor));
  if (values.is_float) return float_constant(values.dims, std::move(values.floats));
  std::vector<Extent> ints;
  ints.reserve(values.ints.size());
  for (const int64_t x : values.ints) ints.push_back({x, false});
  return int_constant(values.dims, std::move(ints));
}

Result<ImportedModel> Importer::run(const OnnxFile& file, const ImportOptions& options) {
  if (file.opset() < kOpsetMin || file.opset() > kOpsetMax) {
    return unsupported_file("the file is of opset " + std::to_string(file.opset()) + ", expected " +
                            std::to_string(kOpsetMin) + " to " + std::to_string(kOpsetMax));
  }
  Importer importer(file, options);
  for (const auto step :
       {&Importer::choose_output, &Importer::choose_nodes, &Importer::define_initializers,
        &Importer::define_input, &Importer::import_nodes, &Importer::finish_output}) {
    if (Status s = (importer.*step)(); !s.ok()) return std::move(s).error();
  }
  return importer.result();
}

Status Importer::choose_output() {
  const GraphProto& graph = file_.graph();
  std::vector<std::string> names;
  for (const ValueProto& v : graph.outputs) names.push_back(v.name);
  if (names.empty()) return invalid_file("the graph has no outputs");
  model_.output = options_.output.empty() ? names.front() : options_.output;
  if (std::ranges::find(names, model_.output) == names.end()) {
    return field_error(
        "FIELD_UNKNOWN_VALUE", "output",
        quoted_value(model_.output) + " is not an output, expected " + list_of(names));
  }
  output_value_ = model_.output;
  if (file_.producer() == "trainyard" && file_.metadata().contains("task")) {
    output_value_ = own_output(graph, model_.output);
    source_ = find_producer(graph, "input");
    if (output_value_.empty()) {
      return invalid_file("it was written by trainyard, but output " + quoted_value(model_.output) +
                          " is not one of its kinds");
    }
    note(
        "The file was exported by Trainyard: its preprocessing and the operations after the "
        "model's output were left out, because a job has its own.");
  } else if (names.size() > 1) {
    note("The file has several outputs, " + list_of(names) + "; the model is " +
         quoted_value(model_.output) + ".");
  }
  return {};
}

Status Importer::choose_nodes() {
  for (const NodeProto& node : file_.graph().nodes) {
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      if (!producers_.emplace(output, &node).second) {
        return invalid_file(node.describe() + " gives " + quoted_value(output) +
                            ", which another node also produces");
      }
    }
  }
  std::set<const NodeProto*> needed;
  std::vector<std::string> open = {output_value_};
  while (!open.empty()) {
    const std::string value = std::move(open.back());
    open.pop_back();
    const auto producer = producers_.find(value);
    if (producer == producers_.end() || producer->second == source_) continue;
    if (!needed.insert(producer->second).second) continue;
    for (const std::string& input : producer->second->inputs) open.push_back(input);
  }
  for (const NodeProto& node : file_.graph().nodes) {
    if (!needed.contains(&node)) continue;
    nodes_.push_back(&node);
    for (const std::string& input : node.inputs) readers_[input].push_back(&node);
  }
  // Constants come first, because a pattern may need one that is defined after the pattern's first
  // node (import_erf).
  std::stable_partition(nodes_.begin(), nodes_.end(),
                        [](const NodeProto* n) { return n->op == "Constant"; });
  model_.nodes = std::ssize(nodes_);
  model_.opset = opset();
  return check_ops();
}

Status Importer::check_ops() const {
  std::map<std::string, std::string> unknown;  // names of nodes, by operation
  for (const NodeProto* node : nodes_) {
    const bool is_standard = node->domain.empty() || node->domain == "ai.onnx";
    const ImportRow* row = is_standard ? find_import_row(node->op) : nullptr;
    if (row != nullptr && row->since <= opset()) continue;
    std::string op = is_standard ? node->op : node->domain + "." + node->op;
    if (row != nullptr) op += " before opset " + std::to_string(row->since);
    std::string& nodes = unknown[std::move(op)];
    nodes +=
        (nodes.empty() ? "" : ", ") +
        quoted_value(!node->name.empty() || node->outputs.empty() ? node->name : node->outputs[0]);
  }
  if (unknown.empty()) return {};
  std::string all;
  for (const auto& [op, nodes] : unknown) {
    const std::string shown = quoted_value(op);
    all += (all.empty() ? "" : "; ") + shown.substr(1, shown.size() - 2) + " (" + nodes + ")";
  }
  return unsupported_file("the file has operations that no layer can represent: " + all);
}

namespace {

/// Returns true if PyTorch's older exporter names a value so that it computed, after the operation
/// that reads it. It turns weights around too, for the operations that have weights.
bool is_computed_name(std::string_view name) {
  constexpr std::string_view kPrefix = "onnx::";
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  return std::ranges::any_of(
      std::array<std::string_view, 6>{"Add_", "Sub_", "Mul_", "Div_", "Where_", "Pow_"},
      [&](std::string_view op) { return name.starts_with(op); });
}

}  // namespace

bool Importer::is_parameter(const TensorProto& tensor, const Constant& constant) const {
  if (trained_) return trained_->contains(tensor.name);
  if (kinds_) return kinds_->is_parameter(tensor.name);
  // A single number is more likely a setting (an epsilon, a scale) than a parameter, and so is a
  // mask. Weights of layers are trained whatever this says.
  const std::vector<float>& x = *constant.floats;
  const bool is_mask = std::ranges::all_of(x, [](float v) { return v == 0 || v <= kMaskedMax; }) &&
                       std::ranges::any_of(x, [](float v) { return v != 0; });
  return x.size() > 1 && !is_mask && !is_computed_name(tensor.name) &&
         std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}

Status Importer::define_initializers() {
  ASSIGN_OR_RETURN(trained_, TrainedParameters::read(file_.metadata()));
  if (!trained_) kinds_ = ExportedKinds::read(file_.graph());
  for (const TensorProto& tensor : file_.graph().initializers) {
    if (!readers_.contains(tensor.name) && tensor.name != output_value_) continue;
    ASSIGN_OR_RETURN(Constant constant, decode(tensor));
    constant.trainable = constant.is_float && is_parameter(tensor, constant);
    constant.initializer = tensor.name;
    if (trained_ && constant.trainable) {
      ASSIGN_OR_RETURN(std::vector<Origin> origins,
                       trained_->count(tensor.name, constant.stored()));
      constant.origins = std::make_shared<const std::vector<Origin>>(std::move(origins));
    }
    define(tensor.name, std::move(constant));
  }
  return {};
}

Result<ValueProto> Importer::choose_input() const {
  std::vector<const ValueProto*> inputs;
  for (const ValueProto& v : file_.graph().inputs) {
    const bool is_read = readers_.contains(v.name) || v.name == output_value_;
    if (find(v.name) == nullptr && (is_read || source_ != nullptr)) inputs.push_back(&v);
  }
  std::vector<std::string> names;
  for (const ValueProto* v : inputs) names.push_back(v->name);
  if (inputs.empty()) return unsupported_file("no output of the file depends on an input");
  if (inputs.size() > 1 && source_ == nullptr) {
    return unsupported_file("the model has several inputs, " + list_of(names) +
                            "; a layer list has only one");
  }
  ValueProto input = *inputs.front();
  if (!input.has_shape) {
    return unsupported_file("input " + quoted_value(input.name) + " has no shape in the file");
  }
  if (source_ != nullptr && inputs.size() == 2 && input.dims.size() == 2 &&
      inputs[1]->dims.size() == 2) {
    input.dims[1].size += inputs[1]->dims[1].size;  // a table has two inputs: numbers, then codes
  }
  if (input.dims.size() > 7) {
    return unsupported_file("input " + quoted_value(input.name) + " has " +
                            std::to_string(input.dims.size()) + " dimensions, expected at most 7");
  }
  for (DimensionProto& d : input.dims) {
    const auto given = options_.sizes.find(d.name);
    if (d.size < 0 && given != options_.sizes.end()) d.size = given->second;
  }
  return input;
}

Status Importer::define_input() {
  ASSIGN_OR_RETURN(const ValueProto input, choose_input());
  const std::vector<DimensionProto>& dims = input.dims;
  model_.input = input.name;
  input_value_ = source_ != nullptr ? "input" : input.name;
  std::optional<size_t> batch;
  if (options_.batched && !dims.empty()) {
    const auto open = std::ranges::find_if(dims, [](const auto& d) { return d.size < 0; });
    batch = open == dims.end() ? 0 : static_cast<size_t>(open - dims.begin());
    if (open == dims.end()) fixed_batch_ = dims[0].size;
    if (fixed_batch_ && *fixed_batch_ < 1) {
      return unsupported_file("input " + quoted_value(input.name) + " has a batch of 0");
    }
  }
  View view;
  view.layer = "input";
  std::vector<int64_t> sample;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (batch == i) {
      model_.input_batch = static_cast<int64_t>(i);
      view.push_batch();
      continue;
    }
    if (dims[i].size < 1 || static_cast<double>(dims[i].size) > kUnitsMax) {
      return unsupported_file(
          "input " + quoted_value(input.name) + ": dimension " + std::to_string(i) +
          (dims[i].size < 0
               ? (dims[i].name.empty() ? std::string() : " " + quoted_value(dims[i].name)) +
                     " is open, but only the batch may be; give its size"
               : " has size " + std::to_string(dims[i].size) + ", expected 1 to 1048576"));
    }
    view.push_dim(dims[i].size);
    sample.push_back(dims[i].size);
  }
  if (sample.empty()) sample.push_back(1);
  const bool tokens = input.element_type == static_cast<int64_t>(ElementType::kInt64) ||
                      input.element_type == static_cast<int64_t>(ElementType::kInt32);
  if (!is_float_type(input.element_type) && !tokens &&
      input.element_type != static_cast<int64_t>(ElementType::kUint8)) {
    return unsupported_file("input " + quoted_value(input.name) + " has type " +
                            name_of(input.element_type) + ", expected numbers or int64 tokens");
  }
  model_.input_shape = Shape(sample);
  interface_ = std::make_unique<ModelInterface>();
  interface_->input = model_.input_shape;
  interface_->outputs = 1;
  interface_->vocabulary = tokens ? 1 : 0;
  build_options_ = std::make_unique<BuildOptions>();
  build_options_->batch_size = kImportBatch;
  build_options_->training = false;
  ASSIGN_OR_RETURN(Network network, Network::start(*interface_, *build_options_));
  network_.emplace(std::move(network));
  define(input_value_, std::move(view));
  return {};
}

Status Importer::import_nodes() {
  for (const NodeProto* node : nodes_) {
    if (done_.contains(node)) continue;
    const ImportRow& row = *find_import_row(node->op);
    if (Status s = check_node_attributes(*node, row); !s.ok()) return s;
    bool all_constant = true;
    for (const std::string& input : node->inputs) {
      if (input.empty()) continue;
      const Value* value = find(input);
      if (value == nullptr) {
        const NodeProto* producer = producer_of(input);
        if (producer != nullptr &&
            std::ranges::find(nodes_, producer) < std::ranges::find(nodes_, node)) {
          return unsupported_node(*producer, "its output " + quoted_value(input) +
                                                 " is used, but no layer computes it");
        }
        return invalid_file(node->describe() + " reads " + quoted_value(input) +
                            ", which no input, initializer or earlier node produces");
      }
      all_constant = all_constant && std::holds_alternative<Constant>(*value);
    }
    NodeImport n(*this, *node);
    if (all_constant && row.fold != nullptr && may_fold(*node)) {
      ASSIGN_OR_RETURN(const bool folded, row.fold(n));
      if (folded) {
        ++model_.folded_nodes;
        if (Status s = count_constants(*node); !s.ok()) return s;
        continue;
      }
    }
    if (row.import == nullptr) {
      return unsupported_node(*node,
                              std::string("depends on ") +
                                  (all_constant ? "trained parameters" : "the model's input") +
                                  ", expected only constants");
    }
    Status s = row.import(n);
    if (!s.ok()) {
      const bool names_node = s.error().message.starts_with("node ");
      return names_node ? s : unsupported_node(*node, s.error().message);
    }
    if (s = count_constants(*node); !s.ok()) return s;
  }
  return {};
}

Status Importer::count_constants(const NodeProto& node) {
  for (const std::string& output : node.outputs) {
    const Value* value = find(output);
    const auto* constant = value != nullptr ? std::get_if<Constant>(value) : nullptr;
    if (constant == nullptr) continue;
    if (constant->dims.size() > kConstantRankMax) {
      return unsupported_node(
          node, "a constant of more than " + std::to_string(kConstantRankMax) + " dimensions");
    }
    folded_sum_ += constant->stored();
  }
  if (folded_sum_ <= kFoldedSumMax) return {};
  return unsupported_node(
      node, "constants of more than " + std::to_string(kFoldedSumMax) + " elements in total");
}

// Values computed from a trained parameter must not replace it, or the parameter would not be
// trained. Therefore only moving its numbers is folded; layers do the rest.
bool Importer::may_fold(const NodeProto& node) const {
  const auto fold = find_import_row(node.op)->fold;
  if (fold == fold_movement || fold == fold_cast) return true;
  return std::ranges::none_of(node.inputs, [&](const std::string& input) {
    return !input.empty() && std::get<Constant>(*find(input)).origins != nullptr;
  });
}

Status Importer::finish_output() {
  const Value* value = find(output_value_);
  if (value == nullptr) {
    return invalid_file("nothing produces output " + quoted_value(model_.output));
  }
  const View* view = std::get_if<View>(value);
  if (view == nullptr || !has_batch(view->layer)) {
    return unsupported_file("output " + quoted_value(model_.output) +
                            " does not depend on the input");
  }
  if (Status s = check_batch_is_one(*view); !s.ok()) {
    return unsupported_file("output " + quoted_value(model_.output) + ": " + s.error().message);
  }
  for (size_t i = 0; i < view->dims.size(); ++i) {
    if (view->extent(view->dims[i]).batch) model_.output_batch = static_cast<int64_t>(i);
  }
  if (model_.output_batch > 0) {
    note("The batch is not the first dimension of the file's output; in the model it is.");
  }
  ASSIGN_OR_RETURN(Canonical last, canonical(*view, /*keep_ones=*/true));
  if (last.layer == "input" || last.layer.find('.') != std::string::npos) {
    ASSIGN_OR_RETURN(last.layer,
                     add_layer("Reshape", {{"shape", sizes_of(last.layer)}}, {last.layer}));
  }
  // Drop layers that the output does not depend on, such as unused rearrangements and outputs of an
  // LSTM.
  std::set<std::string> needed = {last.layer};
  std::vector<LayerSpec> kept;
  for (auto it = layers_.rbegin(); it != layers_.rend(); ++it) {
    if (!needed.contains(it->name)) continue;
    for (const std::string& input : it->inputs) needed.insert(input.substr(0, input.find('.')));
    kept.push_back(std::move(*it));
  }
  layers_.assign(std::move_iterator(kept.rbegin()), std::move_iterator(kept.rend()));
  return {};
}

Status Importer::take_weights(const Network& network) {
  std::vector<std::string> trained, frozen;
  for (const TensorInfo& t : network.model().graph.tensors()) {
    if (t.role != Role::kParameter && t.role != Role::kState) continue;
    const auto found = weights_.find(t.name);
    TRAINYARD_CHECK(
        found != weights_.end() && std::ssize(found->second.values) == t.type.shape.elements(),
        "imported weights of " + t.name);
    if (trained_) {
      ASSIGN_OR_RETURN(const bool is_trained, trained_->take(t.name, found->second.origins));
      if (is_trained && t.role == Role::kState) {
        return unsupported_file("parameter " +
                                quoted_value(trained_->name_of(found->second.origins.front())) +
                                " would be " + quoted_value(t.name) + ", which is not trained");
      }
      if (t.role == Role::kParameter) (is_trained ? trained : frozen).push_back(t.name);
    }
    if (t.role == Role::kParameter) model_.parameter_count += t.type.shape.elements();
    model_.weights.push_back({t.name, t.type.shape, std::move(found->second.values)});
  }
  model_.freezes = freeze_rules(trained, frozen);
  if (model_.freezes.size() > kPatternsMax) {
    return unsupported_file("freezing the weights that the file does not train takes " +
                            std::to_string(model_.freezes.size()) +
                            " patterns in recipe.parameter_groups, expected at most " +
                            std::to_string(kPatternsMax) +
                            ": freeze whole parts of the model, or all parameters of a kind");
  }
  return {};
}

void Importer::note_fixed_layers() {
  constexpr size_t kShown = 5;
  std::string names;
  size_t count = 0;
  for (const LayerSpec& layer : layers_) {
    if (!fixed_layers_.contains(layer.name)) continue;
    if (++count <= kShown) names += (names.empty() ? "" : ", ") + layer.name;
  }
  if (count == 0) return;
  if (count > kShown) names += " and " + std::to_string(count - kShown) + " more";
  note("Buffers and other constants of the file are not trained: " + names +
       "; `trainable: true` in a layer would train its numbers.");
}

// Builds the list again as a job would do it, from the names alone and with another batch size.
Result<ImportedModel> Importer::result() {
  ASSIGN_OR_RETURN(const std::vector<ResolvedLayer> resolved, resolve_layers(layers_, ""));
  const BuildOptions options{.batch_size = kCheckBatch, .training = false};
  ASSIGN_OR_RETURN(Network network, Network::start(*interface_, options));
  for (const ResolvedLayer& layer : resolved) {
    const Result<TensorId> added = network.add(layer);
    if (!added.ok()) return added.error();
  }
  if (Status s = take_weights(network); !s.ok()) return std::move(s).error();
  const std::vector<int64_t>& dims = network.builder().shape(network.model().output).dims();
  TRAINYARD_CHECK(dims[0] == kCheckBatch &&
                      sizes_of(layers_.back().name) == std::vector(dims.begin() + 1, dims.end()),
                  "an imported model that depends on the batch");
  model_.output_shape = Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()));
  const std::string& last = layers_.back().op;
  if (last == "Softmax" || last == "LogSoftmax" || last == "Sigmoid") {
    note("The last layer is " + last +
         ". Classification losses take scores: leave it out to train with softmax_cross_entropy.");
  }
  note_fixed_layers();
  for (const LayerSpec& layer : layers_) {
    if (layer.op != "Embedding") continue;
    const int64_t rows = layer.attributes.get_int("num_embeddings", 0);
    model_.vocabulary = model_.vocabulary == 0 ? rows : std::min(model_.vocabulary, rows);
  }
  model_.layers = std::move(layers_);
  return std::move(model_);
}

Result<ImportedModel> import_model(const OnnxFile& file, const ImportOptions& options) {
  return Importer::run(file, options);
}

Result<ImportedModel> import_model(const std::filesystem::path& path,
                                   const ImportOptions& options) {
  ASSIGN_OR_RETURN(const OnnxFile file, OnnxFile::open(path));
  return Importer::run(file, options);
}

}  // namespace trainyard::onnx
