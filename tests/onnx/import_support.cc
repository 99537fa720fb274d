#include "tests/onnx/import_support.h"

#include <cstring>

#include "src/models/network.h"
#include "tests/support/run_case.h"

namespace trainyard::testing {
namespace {

ProtobufMessage file_value(const std::string& name, const std::vector<int64_t>& dims) {
  ProtobufMessage shape;
  for (const int64_t d : dims) {
    ProtobufMessage dim;
    if (d < 0) {
      dim.add_text(2, "N");
    } else {
      dim.add_int(1, d);
    }
    shape.add_message(1, std::move(dim));
  }
  ProtobufMessage tensor, type, v;
  tensor.add_int(1, 1);
  tensor.add_message(2, std::move(shape));
  type.add_message(1, std::move(tensor));
  v.add_text(1, name);
  v.add_message(2, std::move(type));
  return v;
}

}  // namespace

ProtobufMessage floats(const std::string& name, const std::vector<int64_t>& dims,
                       const std::string& raw) {
  ProtobufMessage t;
  for (const int64_t d : dims) t.add_int(1, d);
  t.add_int(2, 1);
  t.add_text(8, name);
  t.add_text(9, raw);
  return t;
}

std::string model_of(const std::vector<FileNode>& nodes, std::vector<ProtobufMessage> tensors,
                     const std::string& output,
                     const std::map<std::string, std::string>& metadata) {
  ProtobufMessage graph;
  for (const FileNode& node : nodes) {
    ProtobufMessage m;
    for (const std::string& input : node.inputs) m.add_text(1, input);
    for (const std::string& name : node.outputs) m.add_text(2, name);
    m.add_text(3, "the_" + node.op);
    m.add_text(4, node.op);
    for (const auto& [name, value] : node.attributes) {
      ProtobufMessage attribute;
      attribute.add_text(1, name);
      attribute.add_int(3, value);
      attribute.add_int(20, 2);  // the type: a whole number
      m.add_message(5, std::move(attribute));
    }
    graph.add_message(1, std::move(m));
  }
  for (ProtobufMessage& t : tensors) graph.add_message(5, std::move(t));
  graph.add_message(11, file_value("x", {-1, 2}));
  graph.add_message(12, file_value(output, {-1, 2}));
  ProtobufMessage opset, model;
  opset.add_int(2, 17);
  model.add_int(1, 8);
  model.add_message(7, std::move(graph));
  model.add_message(8, std::move(opset));
  for (const auto& [key, value] : metadata) {
    ProtobufMessage entry;
    entry.add_text(1, key);
    entry.add_text(2, value);
    model.add_message(14, std::move(entry));
  }
  std::string bytes;
  for (const auto part : model.parts()) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return bytes;
}

std::vector<double> run_imported(const onnx::ImportedModel& model, int64_t batch,
                                 const std::vector<double>& input, Backend& backend) {
  ModelInterface interface;
  interface.input = model.input_shape;
  interface.vocabulary = model.vocabulary;
  interface.outputs = 1;
  const BuildOptions options{.batch_size = batch, .training = false};
  const auto layers = resolve_layers(model.layers, "");
  TRAINYARD_CHECK(layers.ok(), layers.ok() ? "" : layers.error().message);
  auto network = Network::start(interface, options);
  for (const ResolvedLayer& layer : *layers) {
    const auto added = network->add(layer);
    TRAINYARD_CHECK(added.ok(), added.ok() ? "" : added.error().message);
  }
  CaseGraph c;
  c.graph = network->model().graph;
  c.graph.mark_output(network->model().output);
  c.values[network->model().input] = input;
  for (const onnx::ImportedWeight& w : model.weights) {
    const auto id = c.graph.find_tensor(w.name);
    TRAINYARD_CHECK(id.has_value(), "no parameter is called " + w.name);
    c.values[*id].assign(w.values.begin(), w.values.end());
  }
  const CaseResult result = run_case(c, backend, {.keep_all = false});
  return result.values.at(c.graph.tensor(network->model().output).name);
}

std::vector<double> axis_to_front(const std::vector<double>& values,
                                  const std::vector<int64_t>& dims, int64_t from) {
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < from; ++i) outer *= dims[static_cast<size_t>(i)];
  for (auto i = static_cast<size_t>(from) + 1; i < dims.size(); ++i) inner *= dims[i];
  const int64_t size = dims[static_cast<size_t>(from)];
  std::vector<double> result;
  for (int64_t n = 0; n < size; ++n) {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        result.push_back(values[static_cast<size_t>((o * size + n) * inner + i)]);
      }
    }
  }
  return result;
}

std::vector<double> numbers_of(const TensorView& tensor) {
  const auto count = static_cast<size_t>(tensor.type.shape.elements());
  const auto as = [&]<typename T>(T) {
    std::vector<T> values(count);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return std::vector<double>(values.begin(), values.end());
  };
  return tensor.type.dtype == DType::kI32 ? as(int32_t()) : as(float());
}

}  // namespace trainyard::testing
