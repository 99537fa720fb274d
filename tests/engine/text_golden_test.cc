// Compares models of sequences and text with PyTorch. Initial weights and batches are Philox
// numbers that tests/golden/make_text_golden.py draws too. A misplaced gate, an omitted bias or
// padding that is not masked shows in the first steps, a truncated gradient soon after.
//
// Bound: the loss of each of 50 steps within 1e-4 relative.
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

constexpr double kTextLossBound = 1e-4;
constexpr int64_t kTextClasses = 4;
constexpr int64_t kSteps = 11, kFeatures = 7;          // the shape of a sequence of numbers
constexpr int64_t kTextVocabulary = 50, kLength = 13;  // a row of tokens; 0 is the padding

const Json& text_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/pytorch_text.json"));
    return Json::parse(file);
  }();
  return json;
}

struct TextBatch {
  std::vector<float> numbers;  // empty for text
  std::vector<int32_t> tokens;
  std::vector<int32_t> target;
};
// Returns the batch of numbers() or, for text, of tokens() in tests/golden/make_text_golden.py.
TextBatch batch_of(bool text, uint64_t step) {
  const uint64_t seed = text_golden()["seed"];
  const int64_t rows = text_golden()["batch_size"];
  testing::GoldenBatch drawn =
      testing::golden_batch(seed, step, rows, text ? 0 : kSteps * kFeatures, kTextClasses);
  TextBatch batch{std::move(drawn.input), {}, std::move(drawn.target)};
  const auto draw = [&](const char* stream, int64_t index) {
    return int64_t{math::philox_u32(seed, stream_of(stream), step, static_cast<uint64_t>(index))};
  };
  for (int64_t n = 0; text && n < rows; ++n) {
    const int64_t label = batch.target[static_cast<size_t>(n)];
    const int64_t length = 1 + draw("golden/length", n) % kLength;
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t token =
          1 + (draw("golden/token", n * kLength + t) % 20 + label * 9) % (kTextVocabulary - 1);
      batch.tokens.push_back(t < length ? static_cast<int32_t>(token) : 0);
    }
  }
  return batch;
}

ModelSpec recurrent(std::string op, int64_t hidden, std::string direction) {
  ModelSpec spec;
  spec.layers = {
      {"rows", "Reshape", {}, {{"shape", std::vector<int64_t>{kSteps, kFeatures}}}},
      {"rnn", std::move(op), {}, {{"hidden_size", hidden}, {"direction", std::move(direction)}}},
      {"fc", "Gemm", {"rnn.1"}, {}}};
  return spec;
}

ModelSpec bag(std::string mode) {
  ModelSpec spec;
  spec.preset = "embedding_bag_classifier";
  spec.parameters = {{"embedding_dim", int64_t{16}}, {"mode", std::move(mode)}};
  return spec;
}

ModelSpec lstm_classifier() {
  ModelSpec spec;
  spec.preset = "lstm_classifier";
  spec.parameters = {{"embedding_dim", int64_t{12}},
                     {"hidden_size", int64_t{16}},
                     {"layers", int64_t{2}},
                     {"bidirectional", int64_t{1}}};
  return spec;
}

ModelSpec gru_classifier() {
  ModelSpec spec;
  spec.preset = "lstm_classifier";
  spec.parameters = {{"cell", std::string("gru")},
                     {"embedding_dim", int64_t{12}},
                     {"hidden_size", int64_t{16}},
                     {"bidirectional", int64_t{1}},
                     {"pooling", std::string("last")}};
  return spec;
}

ModelSpec text_cnn() {
  ModelSpec spec;
  spec.preset = "text_cnn";
  spec.parameters = {{"embedding_dim", int64_t{12}}, {"filters", int64_t{10}}, {"dropout", 0.0}};
  return spec;
}

void expect_losses(const std::string& name, const ModelSpec& spec, bool text, int threads,
                   Precision precision = Precision::kFp32) {
  const auto& cases = text_golden()["cases"];
  const auto it =
      std::find_if(cases.begin(), cases.end(), [&](const Json& c) { return c["name"] == name; });
  ASSERT_NE(it, cases.end()) << name;
  const Json& expected = *it;
  Recipe recipe;
  recipe.optimizer.type = expected["optimizer"]["type"];
  recipe.optimizer.learning_rate = expected["optimizer"]["learning_rate"];
  recipe.precision = precision;
  ModelInterface interface { {kSteps * kFeatures}, 0, TargetForm::kClass, kTextClasses };
  if (text) interface = {{kLength}, kTextVocabulary, TargetForm::kClass, kTextClasses, 0};
  RunPrograms programs;
  const auto backend = testing::make_tested_backend(threads);
  auto train =
      compile_training(spec, recipe, interface, text_golden()["batch_size"], backend->traits());
  ASSERT_TRUE(train.ok()) << train.error().message;
  programs.train = *std::move(train);
  Session session(std::move(programs), *backend);
  session.initialize(text_golden()["seed"]);
  const testing::GoldenLosses golden_losses =
      testing::golden_losses(name, precision, expected["losses"], kTextLossBound);
  double worst = 0;
  const auto steps = static_cast<int64_t>(golden_losses.losses.size());
  ASSERT_EQ(steps, 50);
  for (int64_t step = 0; step < steps; ++step) {
    const TextBatch batch = batch_of(text, static_cast<uint64_t>(step));
    Session::StepInputs inputs;
    inputs.input =
        text ? std::as_bytes(std::span(batch.tokens)) : std::as_bytes(std::span(batch.numbers));
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

TEST(TextGolden, Lstm) { expect_losses("lstm", recurrent("LSTM", 24, "forward"), false, 1); }
TEST(TextGolden, LstmOnTwoThreads) {
  expect_losses("lstm", recurrent("LSTM", 24, "forward"), false, 2);
}
TEST(TextGolden, LstmReverse) {
  expect_losses("lstm_reverse", recurrent("LSTM", 17, "reverse"), false, 1);
}
TEST(TextGolden, Gru) { expect_losses("gru", recurrent("GRU", 24, "forward"), false, 2); }
TEST(TextGolden, GruReverse) {
  expect_losses("gru_reverse", recurrent("GRU", 17, "reverse"), false, 1);
}
TEST(TextGolden, LstmClassifier) { expect_losses("lstm_classifier", lstm_classifier(), true, 2); }
TEST(TextGolden, LstmClassifierInBf16) {
  expect_losses("lstm_classifier", lstm_classifier(), true, 2, Precision::kBf16);
}
TEST(TextGolden, GruClassifier) { expect_losses("gru_classifier", gru_classifier(), true, 1); }
TEST(TextGolden, TextCnn) { expect_losses("text_cnn", text_cnn(), true, 2); }
TEST(TextGolden, EmbeddingBagMean) { expect_losses("bag_mean", bag("mean"), true, 2); }
TEST(TextGolden, EmbeddingBagSum) { expect_losses("bag_sum", bag("sum"), true, 1); }

/// Returns the losses of the first steps on the same texts in rows of `length` tokens.
std::vector<double> losses_in_rows_of(int64_t length, const ModelSpec& spec) {
  Recipe recipe;
  recipe.optimizer.type = "adam";
  recipe.optimizer.learning_rate = 0.01;
  const ModelInterface interface { {length}, kTextVocabulary, TargetForm::kClass, kTextClasses, 0 };
  const auto backend = testing::make_tested_backend(2);
  const int64_t rows = text_golden()["batch_size"];
  auto train = compile_training(spec, recipe, interface, rows, backend->traits());
  EXPECT_TRUE(train.ok()) << train.error().message;
  if (!train.ok()) return {};
  RunPrograms programs;
  programs.train = *std::move(train);
  Session session(std::move(programs), *backend);
  session.initialize(text_golden()["seed"]);
  std::vector<double> losses;
  for (int64_t step = 0; step < 3; ++step) {
    const TextBatch batch = batch_of(true, static_cast<uint64_t>(step));
    std::vector<int32_t> tokens(static_cast<size_t>(rows * length), 0);
    for (int64_t n = 0; n < rows; ++n) {
      std::copy_n(batch.tokens.begin() + n * kLength, kLength, tokens.begin() + n * length);
    }
    Session::StepInputs inputs;
    inputs.input = std::as_bytes(std::span(tokens));
    inputs.target = std::as_bytes(std::span(batch.target));
    inputs.step = step;
    inputs.learning_rate = 0.01f;
    losses.push_back(session.run_step(inputs).loss);
  }
  return losses;
}

// Longer rows only have more padding.
TEST(TextPadding, ChangesNoLossOfAnyPreset) {
  ModelSpec transformer, forward, last;
  transformer.preset = "transformer_classifier";
  transformer.parameters = {{"n_embd", int64_t{16}}};
  forward.preset = last.preset = "lstm_classifier";
  forward.parameters = {{"embedding_dim", int64_t{12}}, {"hidden_size", int64_t{16}}};
  last.parameters = forward.parameters;
  last.parameters.set("pooling", std::string("last"));
  for (const auto& [name, spec] : {std::pair{"transformer_classifier", transformer},
                                   {"lstm_classifier, forward", forward},
                                   {"lstm_classifier, last", last},
                                   {"lstm_classifier, both ways", lstm_classifier()},
                                   {"gru, both ways, last", gru_classifier()},
                                   {"text_cnn", text_cnn()},
                                   {"bag", bag("mean")}}) {
    SCOPED_TRACE(name);
    const std::vector<double> few = losses_in_rows_of(kLength, spec);
    const std::vector<double> many = losses_in_rows_of(64, spec);
    ASSERT_EQ(few.size(), many.size());
    for (size_t i = 0; i < few.size(); ++i) EXPECT_NEAR(many[i], few[i], 1e-6 * few[i]) << i;
  }
}

}  // namespace
}  // namespace trainyard
