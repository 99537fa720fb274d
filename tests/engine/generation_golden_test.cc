// Compares generation with transformers (tests/golden/make_generation_golden.py): the same greedy
// texts, scores within 1e-4, and the same probabilities after each way of sampling.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/inference/generator.h"
#include "src/inference/text_model.h"
#include "tests/engine/random_model.h"
#include "tests/engine/train_support.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

const Json& generation_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/generation.json"));
    return Json::parse(file);
  }();
  return json;
}

ModelSpec golden_spec(const std::string& name) {
  if (name == "gpt2") return testing::small_gpt2();
  const ModelSpec qwen3 = testing::small_decoder();
  if (name == "qwen3") return qwen3;
  ModelSpec llama = qwen3;  // neither normalized heads nor windows
  llama.parameters = {};
  for (const auto& [key, value] : qwen3.parameters.items()) {
    if (key != "qk_norm" && !key.starts_with("window")) llama.parameters.set(key, value);
  }
  return llama;
}

class GoldenTexts : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTexts, AreThoseOfTransformers) {
  const testing::Workspace w;
  const auto backend = make_cpu_backend(2);
  const int64_t context = generation_golden()["context"];
  testing::write_random_model(w / "model",
                              testing::letters_model(golden_spec(GetParam()), context));
  const auto generator = Generator::open(w / "model", *backend);
  ASSERT_TRUE(generator.ok()) << generator.error().message;
  const Result<LoadedModel> loaded = read_model(w / "model");
  ASSERT_TRUE(loaded.ok());
  const auto kept = open_kept_text_model(*loaded, 1, context, {}, *backend);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  for (const Json& run : generation_golden()["models"][GetParam()]) {
    const std::string prompt = run["prompt"], expected = run["text"];
    std::string text;
    GenerateOptions options{.tokens = std::ssize(expected), .sampling = {.temperature = 0}};
    options.sampling.repetition_penalty = run["repetition_penalty"];
    const Status done = (*generator)
                            ->generate(std::vector<Prompt>{{.text = prompt}}, options, {},
                                       [&](const Continuation& part) { text += part.text; });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(text, expected) << prompt << " " << options.sampling.repetition_penalty;

    std::vector<int32_t> tokens;
    for (const char c : prompt + expected) tokens.push_back(1 + c - 'a');
    (*kept)->restart();
    ASSERT_TRUE((*kept)->score(std::vector<std::vector<int32_t>>{tokens}, {}).ok());
    std::vector<float> scores(static_cast<size_t>((*kept)->scores()));
    (*kept)->read(0, scores);
    ASSERT_EQ(scores.size(), run["scores"].size());
    double largest = 0;
    for (const Json& s : run["scores"]) largest = std::max(largest, std::abs(s.get<double>()));
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(scores[i], run["scores"][i].get<double>(), 1e-4 * largest) << prompt << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTexts, ::testing::Values("gpt2", "llama", "qwen3"));

TEST(GoldenSampling, HasTheProbabilitiesOfTransformers) {
  int several = 0;
  for (const Json& c : generation_golden()["sampling"]) {
    const auto scores = c["scores"].get<std::vector<float>>();
    std::vector<bool> seen(scores.size());
    for (const Json& token : c["seen"]) seen[token.get<size_t>()] = true;
    const Sampling sampling{.temperature = c["temperature"],
                            .top_k = c["top_k"],
                            .top_p = c["top_p"],
                            .min_p = c["min_p"],
                            .repetition_penalty = c["repetition_penalty"]};
    std::vector<double> ours(scores.size());
    for (const Candidate& k : candidates(scores, seen, sampling)) {
      ours[static_cast<size_t>(k.token)] = k.probability;
    }
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], c["probabilities"][i].get<double>(), 1e-5) << c.dump() << " " << i;
      several += ours[i] > 0 && ours[i] < 1 ? 1 : 0;
    }
  }
  EXPECT_GT(several, 50);
}

// Drawn tokens are as frequent as the candidates are likely, whichever way they are found.
TEST(GoldenSampling, DrawsByTheProbabilities) {
  constexpr int kDraws = 4000;
  for (const Json& c : generation_golden()["sampling"]) {
    const auto scores = c["scores"].get<std::vector<float>>();
    const Sampling sampling{.temperature = c["temperature"],
                            .top_k = c["top_k"],
                            .top_p = c["top_p"],
                            .min_p = c["min_p"]};
    std::vector<int> counts(scores.size());
    for (int i = 0; i < kDraws; ++i) {
      ++counts[static_cast<size_t>(draw_token(scores, {}, sampling, 0, i))];
    }
    std::vector<double> expected(scores.size());
    for (const Candidate& k : candidates(scores, {}, sampling)) {
      expected[static_cast<size_t>(k.token)] = k.probability;
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_NEAR(counts[i], kDraws * expected[i],
                  1 + 5 * std::sqrt(kDraws * expected[i] * (1 - expected[i])))
          << c.dump() << " " << i;
    }
  }
}

}  // namespace
}  // namespace trainyard
