// Fuzzes ONNX files up to the list of layers built from them.
#include "src/base/check.h"
#include "src/onnx/import_model.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto file = onnx::OnnxFile::parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  const auto model = onnx::import_model(*file, {});
  if (!model.ok()) return 0;
  for (const onnx::ImportedWeight& weight : model->weights) {
    TRAINYARD_CHECK(std::ssize(weight.values) == weight.shape.elements(), weight.name);
  }
  (void)onnx::layers_to_yaml(model->layers);
  return 0;
}
