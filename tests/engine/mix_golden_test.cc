// Compares training on mixed images with PyTorch, which trains on the output of torchvision's MixUp
// and CutMix (tests/golden/make_mix_golden.py): the loss of each of 30 steps must agree within 1e-5
// relative.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/math/philox.h"
#include "src/base/philox.h"
#include "src/job/recipe.h"
#include "src/models/loss.h"
#include "src/runtime/backend.h"
#include "src/train/session.h"
#include "tests/engine/tested_backend.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kMixBound = 1e-5;  // relative
constexpr double kRounding = 1e-7;  // absolute: such a loss is a difference of numbers near 1

const Json& mix_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/mix.json"));
    return Json::parse(file);
  }();
  return json;
}

// Computes what batch() in tests/golden/make_mix_golden.py computes.
void mix_batch(int64_t step, std::vector<float>& images, std::vector<int32_t>& labels) {
  const uint64_t seed = mix_golden()["seed"], rows = mix_golden()["batch"];
  const auto dims = mix_golden()["image"].get<std::vector<uint64_t>>();
  const uint64_t size = dims[0] * dims[1] * dims[2], at = static_cast<uint64_t>(step);
  for (uint64_t n = 0; n < rows; ++n) {
    const uint32_t label = math::philox_u32(seed, stream_of("mix/label"), at, n) %
                           mix_golden()["classes"].get<uint32_t>();
    labels.push_back(static_cast<int32_t>(label));
    for (uint64_t i = 0; i < size; ++i) {
      const auto x =
          math::uniform01<float>(math::philox_u32(seed, stream_of("mix/x"), at, n * size + i));
      images.push_back(i % dims[2] == label ? x + 1.5f : x);
    }
  }
}

void run_mix_case(const Json& expected, Backend& backend, int64_t accumulate_steps) {
  const Shape image(mix_golden()["image"].get<std::vector<int64_t>>());
  const ModelInterface data{image, 0, TargetForm::kClass, mix_golden()["classes"]};
  ModelSpec model;
  model.layers = {
      {"conv1",
       "Conv",
       {},
       {{"out_channels", int64_t{4}}, {"pads", int64_t{1}}, {"kernel_shape", int64_t{3}}}},
      {"relu1", "Relu", {}, {}},
      {"flatten", "Flatten", {}, {}},
      {"fc", "Gemm", {}, {}}};
  for (const LossKind& kind : loss_kinds()) {
    if (kind.field == expected["loss"].get<std::string>()) model.loss.op = kind.op;
  }
  const double smoothing = expected["label_smoothing"];
  if (smoothing > 0) model.loss.attributes.set("label_smoothing", smoothing);
  Recipe recipe;
  recipe.batch_size = mix_golden()["batch"];
  recipe.accumulate_steps = accumulate_steps;
  recipe.optimizer = default_optimizer("sgd");
  recipe.optimizer.learning_rate = 0.05;
  recipe.optimizer.momentum = 0.9;
  DatasetSchema schema;
  schema.image = image;
  schema.target.classes.resize(mix_golden()["classes"]);
  for (const Json& mixing : expected["mixings"]) {
    recipe.augmentation.push_back({mixing["kind"], {{"alpha", mixing["alpha"].get<double>()}}});
  }
  const Mixer mixer = make_mixer(recipe.augmentation, schema);
  auto programs = compile_step(model, recipe, data, {}, backend.traits());
  ASSERT_TRUE(programs.ok()) << programs.error().message;
  Session session(std::move(*programs), backend, accumulate_steps);
  session.initialize(mix_golden()["seed"]);
  double worst = 0;
  for (int64_t step = 0; step < std::ssize(expected["losses"]); ++step) {
    std::vector<float> images;
    std::vector<int32_t> labels;
    mix_batch(step, images, labels);
    const double share = mixer.mix_images(mixer.draw(mix_golden()["seed"], step), images);
    const std::vector<float> shares = mixer.mix_labels(share, labels);
    const double loss = session
                            .run_step({.input = std::as_bytes(std::span(images)),
                                       .target = std::as_bytes(std::span(shares)),
                                       .step = step,
                                       .learning_rate = 0.05f})
                            .loss;
    const double wanted = expected["losses"][static_cast<size_t>(step)];
    worst = std::max(worst, std::abs(loss - wanted) / wanted);
    EXPECT_NEAR(loss, wanted, kMixBound * wanted + kRounding) << "step " << step;
  }
  std::printf("  %s: losses within %.1e\n", expected["loss"].get<std::string>().c_str(), worst);
}

TEST(MixGolden, TrainingFollowsPyTorch) {
  const auto cpu = testing::make_tested_backend(2), reference = make_reference_backend();
  for (const Json& expected : mix_golden()["runs"]) {
    SCOPED_TRACE(expected["mixings"].dump());
    run_mix_case(expected, *cpu, 1);
    run_mix_case(expected, *cpu, 3);  // micro-batches share one draw
    run_mix_case(expected, *reference, 1);
  }
}

}  // namespace
}  // namespace trainyard
