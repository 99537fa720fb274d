// Tests that the reader of job files accepts the output of `model import` and reads the same layers
// from it. They fail if an attribute is written in a form that spec files do not have.
#include <gtest/gtest.h>

#include "client/lib/spec_file.h"
#include "proto/convert/spec.h"
#include "src/checkpoint/safetensors.h"
#include "src/onnx/import_model.h"
#include "tests/support/source_path.h"

namespace trainyard::client {
namespace {

/// Indents each line of the text by two spaces.
std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result + "\n";
}

TEST(ImportedModel, CanBePastedIntoAJobFile) {
  const auto golden =
      SafetensorsFile::open(testing::source_path("tests/golden/onnx_models.safetensors"));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  int models = 0;
  for (const TensorView& t : golden->tensors()) {
    if (!t.name.ends_with("/model")) continue;
    const auto file = onnx::OnnxFile::parse(t.bytes);
    ASSERT_TRUE(file.ok()) << t.name;
    const auto model = onnx::import_model(*file, {});
    ASSERT_TRUE(model.ok()) << t.name << ": " << model.error().message;
    const std::string layers = onnx::layers_to_yaml(model->layers);
    const auto spec = parse_spec_file("dataset: {name: any}\nmodel:\n" + indented(layers) +
                                          "recipe: {epochs: 1, optimizer: {learning_rate: 0.1}}\n",
                                      "job.yaml", "", {});
    ASSERT_TRUE(spec.ok()) << t.name << ": " << spec.error().message << "\n" << layers;
    const auto job = to_engine(spec->job_spec());
    ASSERT_TRUE(job.ok()) << t.name << ": " << job.error().message;
    EXPECT_EQ(onnx::layers_to_yaml(job->model.layers), layers) << t.name;
    ++models;
  }
  EXPECT_GT(models, 5);
}

TEST(ImportedModel, SmallNumbersAreReadAsNumbersByEveryYamlReader) {
  const LayerSpec layer{"norm", "BatchNormalization", {}, {{"epsilon", 1e-5}}};
  EXPECT_NE(onnx::layers_to_yaml({layer}).find("epsilon: 1.0e-05"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::client
