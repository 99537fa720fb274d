// Tests with models written by PyTorch's two exporters (tests/golden/make_onnx_models_golden.py):
// they give PyTorch's outputs, and training continues as in PyTorch. The tests catch weights that
// are stored in the wrong place, a batch whose samples are mixed up, and parameters that do not
// train.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/job/recipe.h"
#include "src/models/layer.h"
#include "src/train/session.h"
#include "tests/onnx/import_support.h"
#include "tests/support/source_path.h"

namespace trainyard::onnx {
namespace {

constexpr double kOutputBound = 1e-5;
constexpr double kLossBound = 1e-4;  // relative to the loss
constexpr double kLearningRate = 0.05;

const SafetensorsFile& golden() {
  static const SafetensorsFile file =
      SafetensorsFile::open(testing::source_path("tests/golden/onnx_models.safetensors")).value();
  return file;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const TensorView& t : golden().tensors()) {
    if (t.name.ends_with("/model")) names.push_back(t.name.substr(0, t.name.find('/')));
  }
  return names;
}

class OnnxImportModels : public ::testing::TestWithParam<std::string> {
 protected:
  const TensorView& part(const std::string& name) {
    const TensorView* view = golden().find(GetParam() + "/" + name);
    TRAINYARD_CHECK(view != nullptr, name);
    return *view;
  }
  Result<ImportedModel> import() {
    ASSIGN_OR_RETURN(const OnnxFile file, OnnxFile::parse(part("model").bytes));
    return import_model(file, {});
  }
};

TEST_P(OnnxImportModels, MatchPyTorch) {
  const Result<ImportedModel> model = import();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const TensorView& input = part("input");
  const std::vector<double> expected = testing::numbers_of(part("output"));
  const auto backends = {make_reference_backend(), make_cpu_backend(2)};
  for (const auto& backend : backends) {
    const std::vector<double> found =
        testing::run_imported(*model, input.type.shape[0], testing::numbers_of(input), *backend);
    ASSERT_EQ(found.size(), expected.size());
    double worst = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      worst = std::max(worst, std::fabs(found[i] - expected[i]));
    }
    EXPECT_LT(worst, kOutputBound) << layers_to_yaml(model->layers);
    std::printf("%s on %s: %zu layers, within %.1e\n", GetParam().c_str(),
                std::string(backend->name()).c_str(), model->layers.size(), worst);
  }
}

TEST_P(OnnxImportModels, ContinueTrainingAsInPyTorch) {
  if (golden().find(GetParam() + "/losses") == nullptr) GTEST_SKIP() << "is only computed";
  const Result<ImportedModel> model = import();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const TensorView &input = part("input"), &target = part("target"), &losses = part("losses");
  ModelInterface interface;
  interface.input = model->input_shape;
  interface.vocabulary = model->vocabulary;
  interface.outputs = part("output").type.shape[1];
  ModelSpec spec;
  spec.layers = model->layers;
  Recipe recipe;
  recipe.optimizer.learning_rate = kLearningRate;
  recipe.batch_size = input.type.shape[0];
  RunPrograms programs;
  auto compiled = compile_training(spec, recipe, interface, recipe.batch_size);
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  programs.train = std::move(compiled).value();
  const auto backend = make_cpu_backend(1);
  Session session(std::move(programs), *backend);
  session.initialize(1);
  for (const ImportedWeight& w : model->weights) {
    session.write_weight(w.name, std::as_bytes(std::span(w.values)));
  }
  ASSERT_EQ(session.weight_tensors().size(), model->weights.size());
  const std::vector<double> expected = testing::numbers_of(losses);
  double worst = 0;
  for (size_t step = 0; step < expected.size(); ++step) {
    const double loss = session
                            .run_step({.input = input.bytes,
                                       .target = target.bytes,
                                       .step = static_cast<int64_t>(step),
                                       .learning_rate = static_cast<float>(kLearningRate)})
                            .loss;
    worst = std::max(worst, std::fabs(loss - expected[step]) / expected[step]);
    ASSERT_NEAR(loss, expected[step], kLossBound * expected[step]) << "step " << step + 1;
  }
  std::printf("%s: losses of %zu steps within %.1e of PyTorch, from %.3f to %.3f\n",
              GetParam().c_str(), expected.size(), worst, expected.front(), expected.back());
}

INSTANTIATE_TEST_SUITE_P(All, OnnxImportModels, ::testing::ValuesIn(model_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace trainyard::onnx
