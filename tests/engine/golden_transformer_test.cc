// Compares transformers with PyTorch: initial weights and batches are Philox numbers that
// tests/golden/make_transformer_golden.py draws too, so the losses of 50 steps must agree within
// 1e-4 relative.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/math/philox.h"
#include "src/base/philox.h"
#include "src/job/recipe.h"
#include "src/runtime/backend.h"
#include "src/train/session.h"
#include "tests/engine/golden_batch.h"
#include "tests/engine/half_golden.h"
#include "tests/engine/tested_backend.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kTransformerLossBound = 1e-4;
constexpr int64_t kTransformerVocabulary = 37;
constexpr int64_t kTransformerClasses = 5;

const Json& transformers_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/pytorch_transformers.json"));
    return Json::parse(file);
  }();
  return json;
}

// Batches drawn as in tests/golden/reference_transformers.py.
struct GoldenBatch {
  std::vector<int32_t> tokens;
  std::vector<float> pixels;
  std::vector<int32_t> target;
};

struct Draw {
  uint64_t seed, step;
  int64_t operator()(const char* stream, int64_t i) const {
    return math::philox_u32(seed, stream_of(stream), step, static_cast<uint64_t>(i));
  }
};

GoldenBatch next_token_batch(const Draw& draw, int64_t rows, int64_t context) {
  GoldenBatch batch;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t start = draw("golden/token", n) % kTransformerVocabulary;
    const auto token = [&](int64_t t) {
      return static_cast<int32_t>((start + t * (1 + start % 3)) % kTransformerVocabulary);
    };
    for (int64_t t = 0; t < context; ++t) {
      batch.tokens.push_back(token(t));
      batch.target.push_back(token(t + 1));
    }
  }
  return batch;
}

GoldenBatch text_class_batch(const Draw& draw, int64_t rows, int64_t context) {
  GoldenBatch batch;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t label = draw("golden/label", n) % kTransformerClasses;
    const int64_t length = context / 2 + draw("golden/length", n) % (context / 2 + 1);
    batch.target.push_back(static_cast<int32_t>(label));
    for (int64_t t = 0; t < context; ++t) {
      const int64_t r = draw("golden/token", n * context + t);
      const int64_t token = (r & 1) != 0 ? 1 + label : 1 + (r >> 8) % (kTransformerVocabulary - 1);
      batch.tokens.push_back(static_cast<int32_t>(t < length ? token : 0));
    }
  }
  return batch;
}

GoldenBatch image_batch(const Draw& draw, int64_t rows, int64_t pixels) {
  testing::GoldenBatch drawn =
      testing::golden_batch(draw.seed, draw.step, rows, pixels, kTransformerClasses);
  return {{}, std::move(drawn.input), std::move(drawn.target)};
}

struct GoldenTransformer {
  ModelSpec spec;
  ModelInterface interface;
  GoldenBatch batch(const Draw& draw, int64_t rows) const {
    if (spec.preset == "gpt2") return next_token_batch(draw, rows, interface.input[0]);
    if (interface.vocabulary > 0) return text_class_batch(draw, rows, interface.input[0]);
    return image_batch(draw, rows, interface.input.elements());
  }
};

GoldenTransformer transformer_of(const std::string& name) {
  GoldenTransformer m;
  if (name.starts_with("gpt2")) {
    m.spec.preset = "gpt2";
    m.spec.parameters = {{"size", std::string("nano")}, {"n_layer", int64_t{2}}};
    m.interface = {{72}, kTransformerVocabulary, TargetForm::kNextToken, kTransformerVocabulary};
  } else if (name.starts_with("vit")) {
    const bool mean = name.starts_with("vit_tiny_mean");
    m.spec.preset = "vit_tiny";
    m.spec.parameters = {{"patch_size", int64_t{mean ? 8 : 4}},
                         {"pool", std::string(mean ? "mean" : "class_token")}};
    m.interface = {{3, 16, 16}, 0, TargetForm::kClass, kTransformerClasses};
  } else {
    m.spec.preset = "transformer_classifier";
    m.spec.parameters = {{"n_embd", int64_t{32}}};
    m.interface = {{20}, kTransformerVocabulary, TargetForm::kClass, kTransformerClasses};
  }
  return m;
}

void run_transformer_case(const std::string& name, int threads,
                          Precision precision = Precision::kFp32) {
  const auto& cases = transformers_golden()["cases"];
  const auto it =
      std::find_if(cases.begin(), cases.end(), [&](const Json& c) { return c["name"] == name; });
  ASSERT_NE(it, cases.end()) << name;
  const Json& expected = *it;
  const uint64_t seed = transformers_golden()["seed"];
  const int64_t rows = expected["batch_size"];
  const Json& optimizer = expected["optimizer"];

  Recipe recipe;
  recipe.optimizer.type = optimizer["type"];
  recipe.optimizer.learning_rate = optimizer["learning_rate"];
  recipe.optimizer.momentum = optimizer.value("momentum", 0.0);
  recipe.optimizer.weight_decay = optimizer.value("weight_decay", 0.0);
  recipe.batch_size = rows;
  recipe.precision = precision;
  const GoldenTransformer model = transformer_of(name);
  RunPrograms programs;
  const auto backend = testing::make_tested_backend(threads);
  programs.train =
      compile_training(model.spec, recipe, model.interface, rows, backend->traits()).value();
  Session session(std::move(programs), *backend);
  session.initialize(seed);

  const testing::GoldenLosses golden_losses =
      testing::golden_losses(name, precision, expected["losses"], kTransformerLossBound);
  double worst = 0;
  const auto steps = static_cast<int64_t>(golden_losses.losses.size());
  ASSERT_EQ(steps, 50);
  for (int64_t step = 0; step < steps; ++step) {
    const GoldenBatch batch = model.batch({seed, static_cast<uint64_t>(step)}, rows);
    Session::StepInputs inputs;
    inputs.input = batch.tokens.empty() ? std::as_bytes(std::span(batch.pixels))
                                        : std::as_bytes(std::span(batch.tokens));
    inputs.target = std::as_bytes(std::span(batch.target));
    inputs.step = step;
    inputs.learning_rate = static_cast<float>(recipe.optimizer.learning_rate);
    const double loss = session.run_step(inputs).loss;
    const double golden_loss = golden_losses.losses[static_cast<size_t>(step)];
    ASSERT_NEAR(loss, golden_loss, golden_losses.bound * golden_loss) << "step " << step + 1;
    worst = std::max(worst, std::fabs(loss - golden_loss) / golden_loss);
  }
  std::printf("%s: losses within %.1e of PyTorch\n", name.c_str(), worst);
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
}

TEST(PyTorchGolden, Gpt2WithAdamW) { run_transformer_case("gpt2_adamw", 1); }
TEST(PyTorchGolden, Gpt2InBf16) { run_transformer_case("gpt2_adamw", 2, Precision::kBf16); }
TEST(PyTorchGolden, Gpt2InFp16) { run_transformer_case("gpt2_adamw", 2, Precision::kFp16); }
TEST(PyTorchGolden, VitInBf16) { run_transformer_case("vit_tiny_adam", 2, Precision::kBf16); }
TEST(PyTorchGolden, Gpt2WithSgd) { run_transformer_case("gpt2_sgd", 2); }
TEST(PyTorchGolden, VitWithAClassToken) { run_transformer_case("vit_tiny_adam", 2); }
TEST(PyTorchGolden, VitWithMeanPooling) { run_transformer_case("vit_tiny_mean_sgd", 1); }
TEST(PyTorchGolden, TransformerClassifierWithAdam) {
  run_transformer_case("transformer_classifier_adam", 1);
}
TEST(PyTorchGolden, TransformerClassifierWithSgd) {
  run_transformer_case("transformer_classifier_sgd", 2);
}

}  // namespace
}  // namespace trainyard
