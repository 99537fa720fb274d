#include "src/onnx/export_model.h"

#include <unistd.h>

#include <limits>

#include "src/artifact/model_artifact.h"
#include "src/base/text.h"
#include "src/checkpoint/typed_bytes.h"
#include "src/graph/op.h"
#include "src/models/model_spec.h"
#include "src/onnx/interface.h"
#include "src/onnx/op_table.h"
#include "src/passes/simplify.h"

namespace trainyard::onnx {
namespace {

namespace fs = std::filesystem;

// The largest message that Protobuf's readers accept.
constexpr int64_t kFileBytesMax = std::numeric_limits<int32_t>::max();

// Shapes are static in this program, but the batch is open in the ONNX file. To find the sizes that
// depend on the batch, the model is built for two batch sizes, and the two graphs are compared.
constexpr int64_t kOneBatch = 2;
constexpr int64_t kOtherBatch = 3;

Error unsupported(const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "ONNX_UNSUPPORTED", what);
}

Result<Model> build_inference(const ModelInfo& info, int64_t batch) {
  ModelInterface interface = info.interface();
  interface.documents = false;  // a row of the file is one document
  ASSIGN_OR_RETURN(Model model,
                   build_model(info.model, interface, {.batch_size = batch, .training = false}));
  remove_dead_code(model.graph);
  return model;
}

/// Returns the attribute `shape` with kBatch in place of the batch; empty if the node has no such
/// attribute.
Result<std::vector<int64_t>> any_batch(const Node& node, const Node& other) {
  const auto depends = [&] {
    return unsupported("layer " + node.name + " behaves differently for another batch size");
  };
  std::vector<int64_t> shape = node.attributes.get_ints("shape", {});
  const std::vector<int64_t> other_shape = other.attributes.get_ints("shape", {});
  if (node.op != other.op || shape.size() != other_shape.size()) return depends();
  int64_t open = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == other_shape[i]) continue;
    if (shape[i] * kOtherBatch != other_shape[i] * kOneBatch || ++open > 1) return depends();
    if (node.op->type() != "Reshape" && (i > 0 || shape[i] != kOneBatch)) return depends();
    shape[i] = kBatch;
  }
  return shape;
}

/// Returns the names of the ONNX values, by tensor.
std::vector<std::string> value_names(const Model& model, const std::string& input) {
  std::vector<std::string> names;
  for (const TensorInfo& t : model.graph.tensors()) {
    names.push_back(is_interface_name(t.name) ? t.name + ":layer" : t.name);
  }
  names.at(static_cast<size_t>(model.input)) = input;
  return names;
}

/// `widened` receives the numbers of weights that are stored in 16 bits.
Status write_weights(GraphWriter& onnx, const Graph& graph, const SafetensorsFile& weights,
                     std::vector<std::vector<std::byte>>& widened) {
  std::vector<bool> read(graph.tensors().size());
  for (const Node& node : graph.nodes()) {
    for (const TensorId id : node.inputs) {
      if (id != kNoTensor) read[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t i = 0; i < read.size(); ++i) {
    const TensorInfo& t = graph.tensors()[i];
    if (!read[i] || (t.role != Role::kParameter && t.role != Role::kState)) continue;
    ASSIGN_OR_RETURN(const TensorView* view, find_weight(weights, t));
    onnx.add_initializer(t.name, t.type, typed_bytes(*view, widened.emplace_back()));
  }
  return {};
}

/// Each column is an input with its own name, which no other value of the file may have.
Status check_columns(const GraphWriter& onnx, const DatasetSchema& schema) {
  for (const ColumnSchema& c : schema.columns) {
    if (!onnx.has_value(c.name)) continue;
    return unsupported("raw rows: the column " + quoted_value(c.name) +
                       " has the name of another value of the file, expected one that no layer, "
                       "weight or output has");
  }
  return {};
}

/// The message refers to the bytes of `loaded` and `widened`.
Result<ProtobufMessage> graph_message(const LoadedModel& loaded, bool raw_rows,
                                      std::vector<std::vector<std::byte>>& widened) {
  const ModelInfo& info = loaded.info;
  ASSIGN_OR_RETURN(const Model model, build_inference(info, kOneBatch));
  ASSIGN_OR_RETURN(const Model other, build_inference(info, kOtherBatch));
  const std::vector<Node>& nodes = model.graph.nodes();
  TRAINYARD_CHECK(nodes.size() == other.graph.nodes().size(), "one model, two graphs");
  if (Status s = check_ops(model.graph); !s.ok()) return std::move(s).error();

  GraphWriter onnx;
  InputNames input;
  if (raw_rows) {
    ASSIGN_OR_RETURN(input, write_raw_inputs(onnx, info.schema, info.preprocessing));
  } else {
    input = write_inputs(onnx, info.schema, info.preprocessing);
  }
  const std::vector<std::string> names = value_names(model, input.value);
  if (Status s = write_weights(onnx, model.graph, loaded.weights, widened); !s.ok()) {
    return std::move(s).error();
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, any_batch(nodes[i], other.graph.nodes()[i]));
    NodeWriter writer(onnx, model.graph, nodes[i], names, std::move(shape), input.source);
    write_node(writer);
  }
  write_outputs(onnx, loaded.objective, info.schema, info.preprocessing,
                names.at(static_cast<size_t>(model.output)));
  if (raw_rows) {
    if (Status s = check_columns(onnx, info.schema); !s.ok()) return std::move(s).error();
  }
  return std::move(onnx).finish(info.model.preset.empty() ? "layers" : info.model.preset);
}

ProtobufMessage model_message(ProtobufMessage graph,
                              const std::map<std::string, std::string>& metadata, bool ml_ops) {
  // Field numbers of ModelProto, OperatorSetIdProto and StringStringEntryProto.
  constexpr int kFileVersion = 1, kProducer = 2, kProducerVersion = 3, kGraph = 7, kOpsets = 8,
                kMetadata = 14;
  constexpr int kOpsetDomain = 1, kOpsetVersion = 2;
  constexpr int kKey = 1, kValue = 2;
  ProtobufMessage opset;  // of the default domain, hence without a name
  opset.add_int(kOpsetVersion, kOpset);
  ProtobufMessage model;
  model.add_int(kFileVersion, kIrVersion);
  model.add_text(kProducer, "trainyard");
  model.add_text(kProducerVersion, TRAINYARD_VERSION);
  model.add_message(kGraph, std::move(graph));
  model.add_message(kOpsets, std::move(opset));
  if (ml_ops) {
    ProtobufMessage ml;
    ml.add_text(kOpsetDomain, kMlDomain);
    ml.add_int(kOpsetVersion, kMlOpset);
    model.add_message(kOpsets, std::move(ml));
  }
  for (const auto& [key, value] : metadata) {
    ProtobufMessage entry;
    entry.add_text(kKey, key);
    entry.add_text(kValue, value);
    model.add_message(kMetadata, std::move(entry));
  }
  return model;
}

}  // namespace

Status check_target(const fs::path& file, bool overwrite) {
  std::error_code ignored;
  const fs::file_status there = fs::symlink_status(file, ignored);
  if (fs::exists(there) && !(overwrite && fs::is_regular_file(there))) {
    return make_error(ErrorCode::kAlreadyExists, "FILE_EXISTS",
                      file.string() + " exists; expected the name of a new file" +
                          (overwrite ? ", or of a regular one" : ""));
  }
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored)) {
    return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                      file.string() + ": there is no folder " + folder.string());
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    return make_error(ErrorCode::kPermissionDenied, "FILE_NOT_WRITABLE",
                      file.string() + ": the folder " + folder.string() + " is not writable");
  }
  return {};
}

Result<int64_t> export_model(Files& files, const fs::path& model_folder, const fs::path& file,
                             const ExportOptions& options) {
  if (Status s = check_target(file, options.overwrite); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const LoadedModel loaded, read_model(model_folder));
  const ModelInfo& info = loaded.info;
  std::vector<std::vector<std::byte>> widened;
  ASSIGN_OR_RETURN(ProtobufMessage graph, graph_message(loaded, options.raw_rows, widened));
  const ProtobufMessage model = model_message(
      std::move(graph),
      interface_metadata(loaded.objective, info.schema, info.preprocessing, options.raw_rows),
      options.raw_rows);
  const int64_t size = model.size_bytes();
  if (size > kFileBytesMax) {
    return make_error(ErrorCode::kFailedPrecondition, "ONNX_TOO_LARGE",
                      "the model needs " + human_bytes(size) +
                          ", but an ONNX file is limited to 2 GiB; export it as safetensors");
  }
  if (Status s = replace_file(files, file, model.parts()); !s.ok()) return std::move(s).error();
  return size;
}

}  // namespace trainyard::onnx
