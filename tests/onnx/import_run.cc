// Imports an ONNX file and computes its output, for tests that compare it with another runtime:
//
//     onnx_import_run FILE INPUT OUTPUT BATCH
//
// INPUT has the numbers of BATCH samples as float32, or tokens as int32; OUTPUT will have those of
// the output as float32, both with the batch first. Prints a JSON object: `refused` with the
// reason, or `operations` (how often the layer list has each), `output`, `output_batch`, `notes`,
// `parameters`, and `training_bytes`, the activations of a training step of BATCH samples.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/inference/inference.h"
#include "src/onnx/import_model.h"
#include "src/runtime/backend.h"

namespace trainyard::onnx {
namespace {

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

/// Returns the model with more layers behind its output, so that a job with `outputs` scores takes
/// it.
ModelSpec with_layers(const ImportedModel& model, std::vector<LayerSpec> more) {
  ModelSpec spec;
  spec.layers = model.layers;
  for (LayerSpec& layer : more) {
    layer.name = "last_" + std::to_string(spec.layers.size());
    layer.inputs = {spec.layers.back().name};
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

LayerSpec layer_of(const std::string& op, Attributes attributes) {
  LayerSpec layer;
  layer.op = op;
  layer.attributes = std::move(attributes);
  return layer;
}

ModelInterface interface_of(const ImportedModel& model, int64_t outputs) {
  ModelInterface interface;
  interface.input = model.input_shape;
  interface.vocabulary = model.vocabulary;
  interface.target = TargetForm::kNumeric;
  interface.outputs = outputs;
  return interface;
}

/// Returns the activations of a step that trains the mean of the outputs.
int64_t training_bytes(const ImportedModel& model, int64_t batch) {
  std::vector<int64_t> axes;
  for (int64_t i = 1; i <= model.output_shape.rank(); ++i) axes.push_back(i);
  std::vector<LayerSpec> mean = {layer_of("ReduceMean", {{"axes", axes}})};
  if (axes.size() > 1) mean.push_back(layer_of("Flatten", {}));
  Recipe recipe;
  recipe.batch_size = batch;
  const auto program =
      compile_training(with_layers(model, std::move(mean)), recipe, interface_of(model, 1), batch);
  if (!program.ok()) std::fprintf(stderr, "%s\n", program.error().message.c_str());
  return program.ok() ? program->program.memory.activation_bytes : 0;
}

Result<std::vector<float>> outputs_of(const ImportedModel& model,
                                      const std::filesystem::path& input,
                                      const std::filesystem::path& folder, int64_t batch) {
  std::vector<LayerSpec> flat;
  if (model.output_shape.rank() > 1) flat.push_back(layer_of("Flatten", {}));
  ASSIGN_OR_RETURN(BoundProgram program,
                   compile_inference(with_layers(model, std::move(flat)),
                                     interface_of(model, model.output_shape.elements()), batch,
                                     nullptr, Precision::kFp32));
  if (Status s = write_imported(local_files(), model, folder); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const SafetensorsFile weights, SafetensorsFile::open(folder / kWeightsFile));
  const auto backend = make_cpu_backend(2);
  ASSIGN_OR_RETURN(const auto inference, Inference::open(std::move(program), weights, *backend));
  inference->run(read_file(input));
  std::vector<float> values(static_cast<size_t>(batch * model.output_shape.elements()));
  inference->read_output(values);
  return values;
}

int run(const std::vector<std::string>& arguments) {
  const int64_t batch = std::stoll(arguments[3]);
  nlohmann::json report;
  const auto model = import_model(std::filesystem::path(arguments[0]), ImportOptions{});
  if (!model.ok()) {
    report["refused"] = model.error().message;
  } else {
    for (const LayerSpec& layer : model->layers) {
      auto& count = report["operations"][layer.op];
      count = count.is_null() ? 1 : count.get<int>() + 1;
    }
    report["notes"] = model->notes;
    report["output"] = model->output;
    report["output_batch"] = model->output_batch;
    report["parameters"] = model->parameter_count;
    report["training_bytes"] = training_bytes(*model, batch);
    const auto values = outputs_of(*model, arguments[1], arguments[2] + ".model", batch);
    if (!values.ok()) {
      report["refused"] = values.error().message;
    } else {
      std::ofstream(arguments[2], std::ios::binary)
          .write(reinterpret_cast<const char*>(values->data()),
                 static_cast<std::streamsize>(values->size() * sizeof(float)));
    }
  }
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace trainyard::onnx

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: onnx_import_run FILE INPUT OUTPUT BATCH\n");
    return 2;
  }
  return trainyard::onnx::run({argv + 1, argv + argc});
}
