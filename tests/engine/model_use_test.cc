// Tests of the uses of trained models: continuing a text, and evaluation on other datasets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>

#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/inference/evaluate_model.h"
#include "src/inference/generator.h"
#include "src/job/confusion.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::Recorder;
using testing::Workspace;

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::map<int32_t, int> draws(const std::vector<float>& logits, const Sampling& sampling,
                             int count) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[draw_token(logits, {}, sampling, 0, i)];
  return counts;
}

TEST(DrawToken, FollowsTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), kNever, std::log(0.3f), std::log(0.2f)};
  constexpr int kCount = 20000;
  auto counts = draws(logits, {}, kCount);
  EXPECT_NEAR(counts[0], 0.5 * kCount, 4 * std::sqrt(kCount * 0.25));
  EXPECT_NEAR(counts[2], 0.3 * kCount, 4 * std::sqrt(kCount * 0.21));
  EXPECT_NEAR(counts[3], 0.2 * kCount, 4 * std::sqrt(kCount * 0.16));
  EXPECT_EQ(counts.count(1), 0u);
  // A temperature of 1/2 squares the odds, which become 25 : 9 : 4.
  counts = draws(logits, {.temperature = 0.5}, kCount);
  EXPECT_NEAR(counts[0], 25.0 / 38 * kCount, 4 * std::sqrt(kCount * 0.23));
}

/// Draws a token as sampling.h defines it: all tokens are sorted.
int32_t draw_sorted(const std::vector<float>& logits, double temperature, double drawn) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](size_t i) {
    return std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) /
                    temperature);
  };
  double all = 0, sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) all += weight(i);
  for (const size_t i : order) {
    sum += weight(i);
    if (drawn * all < sum) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(order.back());
}

// This holds even if each of many tokens is unlikely, but all of them together are likely.
TEST(DrawToken, SortsNoMoreThanItMustAndDrawsTheSame) {
  for (const float unlikely : {-2.0f, -9.0f, -20.0f}) {
    std::vector<float> logits(5000);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = unlikely - static_cast<float>(i * 7919 % 5000) * 1e-4f;
    }
    for (size_t i = 0; i < 5; ++i) logits[777 * i] = -static_cast<float>(i);
    for (const double temperature : {0.5, 1.0, 3.0}) {
      for (int i = 0; i < 50; ++i) {
        const math::Philox4 block =
            math::philox_block(4, stream_of("generate"), 0, static_cast<uint64_t>(i));
        const uint64_t bits = (uint64_t{block.v[0]} << 32 | block.v[1]) >> 11;
        EXPECT_EQ(draw_token(logits, {}, {.temperature = temperature, .seed = 4}, 0, i),
                  draw_sorted(logits, temperature, static_cast<double>(bits) * 0x1p-53))
            << unlikely << " " << temperature << " " << i;
      }
    }
  }
}

TEST(DrawToken, ThePenaltyDecidesWhatIsLikeliest) {
  const std::vector<float> logits = {3, 2.5f, -1};
  const std::vector<bool> seen = {true, false, false};
  EXPECT_EQ(draw_token(logits, seen, {.temperature = 0, .repetition_penalty = 1}, 0, 0), 0);
  EXPECT_EQ(draw_token(logits, seen, {.temperature = 0, .repetition_penalty = 2}, 0, 0), 1);
}

TEST(DrawToken, TopKAndTopPKeepTheLikeliest) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  EXPECT_EQ(draws(logits, {.top_k = 2}, 500).count(0), 0u);
  EXPECT_EQ(draws(logits, {.top_k = 2}, 500).size(), 2u);
  EXPECT_EQ(draws(logits, {.top_k = 99}, 500).size(), 3u);
  EXPECT_EQ(draws(logits, {.top_p = 0.49}, 500).size(), 1u);
  EXPECT_EQ(draws(logits, {.top_p = 0.6}, 500).size(), 2u) << "the fewest that reach p";
  EXPECT_EQ(draws(logits, {.top_p = 1}, 500).size(), 3u);
}

TEST(DrawToken, GreedyChoosesTheFirstOfTheLikeliest) {
  const std::vector<float> logits = {1, 3, 3, 2};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(draw_token(logits, {}, {.temperature = 0}, 0, i), 1);
}

TEST(DrawToken, DependsOnSeedRowAndIndexAlone) {
  const std::vector<float> logits(50, 0.0f);
  std::vector<int32_t> first, again, other, row;
  for (int i = 0; i < 40; ++i) {
    first.push_back(draw_token(logits, {}, {.seed = 5}, 0, i));
    again.push_back(draw_token(logits, {}, {.seed = 5}, 0, i));
    other.push_back(draw_token(logits, {}, {.seed = 6}, 0, i));
    row.push_back(draw_token(logits, {}, {.seed = 5}, 1, i));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_NE(first, row);
}

TEST(CheckSampling, NamesTheField) {
  EXPECT_TRUE(check_sampling({}).ok());
  EXPECT_EQ(check_sampling({.temperature = -1}).error().violations[0].field, "temperature");
  EXPECT_EQ(check_sampling({.temperature = std::nan("")}).error().violations[0].field,
            "temperature");
  EXPECT_EQ(check_sampling({.top_k = -1}).error().violations[0].field, "top_k");
  EXPECT_EQ(check_sampling({.top_p = 0}).error().violations[0].field, "top_p");
  EXPECT_EQ(check_sampling({.top_p = 1.1}).error().violations[0].field, "top_p");
}

/// A model that has learned the cyclic order of the alphabet's first seven letters.
class Letters : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 700; ++i) text += static_cast<char>('a' + i % 7);
    std::ofstream(w_ / "input.txt") << text;
    IngestRequest request;
    request.format = "text";
    request.sources.push_back({"data", w_ / "input.txt"});
    ASSERT_TRUE(ingest(request, w_ / "dataset", local_files()).ok());
    TrainJob job;
    job.model.preset = "gpt2";
    job.model.parameters = {
        {"n_layer", int64_t{1}}, {"n_head", int64_t{2}}, {"n_embd", int64_t{16}}, {"dropout", 0.0}};
    job.recipe.optimizer.type = "adam";
    job.recipe.optimizer.learning_rate = 0.01;
    job.recipe.context_length = 5;
    job.recipe.batch_size = 16;
    job.recipe.steps = 150;
    job.dataset = w_ / "dataset";
    job.checkpoints = w_ / "checkpoints";
    job.model_output = w_ / "model";
    Recorder recorder;
    const auto result = train(job, *backend_, local_files(), recorder, {});
    ASSERT_TRUE(result.ok()) << result.error().message;
  }
  Result<std::string> generate(const std::string& prompt, int64_t tokens, const Sampling& sampling,
                               std::stop_token stop = {}) {
    ASSIGN_OR_RETURN(const auto generator, Generator::open(w_ / "model", *backend_));
    std::string text;
    if (Status s = generator->generate(std::vector<Prompt>{{.text = prompt}},
                                       {.tokens = tokens, .sampling = sampling}, stop,
                                       [&](const Continuation& part) { text += part.text; });
        !s.ok()) {
      return std::move(s).error();
    }
    return text;
  }
  const Workspace w_;
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
};

TEST_F(Letters, GeneratesBeyondItsContextFromAnyPrompt) {
  const Sampling greedy{.temperature = 0};
  EXPECT_EQ(generate("c", 3, greedy).value(), "def");  // the prompt is shorter than the context
  EXPECT_EQ(generate("abcde", 4, greedy).value(), "fgab");
  EXPECT_EQ(generate("efgabcdefgabc", 30, greedy).value(), "defgabcdefgabcdefgabcdefgabcde");
}

TEST_F(Letters, TheSeedDeterminesTheText) {
  const Sampling warm{.temperature = 30, .seed = 3};  // so hot that nearly any letter is drawn
  const std::string text = generate("a", 60, warm).value();
  EXPECT_EQ(text.size(), 60u);
  EXPECT_EQ(generate("a", 60, warm).value(), text);
  EXPECT_EQ(generate("a", 20, warm).value(), text.substr(0, 20)) << "a longer text begins alike";
  EXPECT_NE(generate("a", 60, {.temperature = 30, .seed = 4}).value(), text);
}

TEST_F(Letters, RefusesPromptsThatItCannotRead) {
  for (const std::string prompt : {"", "abcX", "caf\xe9"}) {
    const auto text = generate(prompt, 3, {});
    ASSERT_FALSE(text.ok()) << prompt;
    EXPECT_EQ(text.error().reason, "PROMPT_INVALID");
    EXPECT_EQ(text.error().violations[0].field, "prompt");
  }
  EXPECT_NE(generate("abcX", 3, {}).error().message.find("'X'"), std::string::npos);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(generate("a", 3, {}, stop.get_token()).error().code, ErrorCode::kCancelled);
}

TEST_F(Letters, IsMeasuredOnAnotherText) {
  // the vocabulary differs: X has the first code
  std::ofstream(w_ / "other.txt") << "cdefgabcdefgabXabcdef";
  IngestRequest request;
  request.format = "text";
  request.sources.push_back({"data", w_ / "other.txt"});
  ASSERT_TRUE(ingest(request, w_ / "other", local_files()).ok());
  const auto measured = evaluate_model(w_ / "model", w_ / "other", "", {}, *backend_);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(measured->partition, "train");
  EXPECT_EQ(measured->rows, 4);  // windows of 5 tokens in a text of 21 tokens
  std::map<std::string, double> values(measured->values.begin(), measured->values.end());
  EXPECT_GT(values.at("accuracy"), 0.8);  // wrong only next to the X
  EXPECT_LT(values.at("accuracy"), 1);
  EXPECT_TRUE(measured->confusion.empty());
}

// At a high temperature, a model over subwords and bytes draws incomplete UTF-8 characters; they
// must never be returned.
TEST(Subwords, ContinueInWholeCharacters) {
  const char* program = std::getenv("TRAINYARD_TOKENIZER_PROGRAM");
  if (program == nullptr || !std::filesystem::exists(program)) {
    GTEST_SKIP() << "built without SentencePiece";
  }
  const Workspace w;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the tower \xf0\x9f\x98\x80 of the town\n";
  std::ofstream(w / "input.txt") << text;
  std::ofstream(w / "other.txt") << "of the tower of the town of the tower \xf0\x9f\x98\x80\n";
  for (const auto& [name, pieces] : {std::pair{"input", 290}, std::pair{"other", 300}}) {
    IngestRequest request;
    request.format = "text";
    request.text.tokenizer = "bpe";
    request.text.vocabulary_size = pieces;
    request.sources.push_back({"data", w / (std::string(name) + ".txt")});
    const auto schema = ingest(request, w / name, local_files());
    ASSERT_TRUE(schema.ok()) << schema.error().message;
  }
  TrainJob job;
  job.model.preset = "gpt2";
  job.model.parameters = {
      {"n_layer", int64_t{1}}, {"n_head", int64_t{2}}, {"n_embd", int64_t{32}}, {"dropout", 0.0}};
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.context_length = 8;
  job.recipe.batch_size = 16;
  job.recipe.steps = 120;
  job.dataset = w / "input";
  job.checkpoints = w / "checkpoints";
  job.model_output = w / "model";
  const auto backend = make_cpu_backend(1);
  Recorder recorder;
  const auto result = train(job, *backend, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const auto generator = Generator::open(w / "model", *backend);
  ASSERT_TRUE(generator.ok()) << generator.error().message;
  const auto generate = [&](double temperature, int64_t tokens) {
    std::string all;
    int64_t reported = 0;
    const Status s =
        (*generator)
            ->generate(std::vector<Prompt>{{.text = "the tower"}},
                       {.tokens = tokens, .sampling = {.temperature = temperature, .seed = 7}}, {},
                       [&](const Continuation& part) {
                         EXPECT_TRUE(is_utf8(part.text)) << quoted_value(part.text);
                         ++reported;
                         all += part.text;
                       });
    EXPECT_TRUE(s.ok()) << s.error().message;
    EXPECT_EQ(reported, tokens);
    return all;
  };
  EXPECT_TRUE(generate(0, 30).starts_with(" \xf0\x9f\x98\x80 of the town\n")) << generate(0, 30);
  EXPECT_NE(generate(60, 300).find("\xef\xbf\xbd"), std::string::npos);
  const auto measured = evaluate_model(w / "model", w / "other", "", {}, *backend);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  std::map<std::string, double> values(measured->values.begin(), measured->values.end());
  EXPECT_GT(values.at("accuracy"), 0.3);
  // a token is several bytes
  EXPECT_LT(values.at("bits_per_byte"), values.at("loss") / std::log(2));
}

TEST(EvaluateModel, MatchesTheMetricsOfTraining) {
  const Workspace w;
  TrainJob job;
  job.dataset = testing::make_dataset(w, true, 120, 45);
  job.model = testing::image_model(0.0);
  job.recipe.steps = 30;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.learning_rate = 0.05;
  job.checkpoints = w / "checkpoints";
  job.model_output = w / "model";
  const auto backend = make_cpu_backend(1);
  Recorder recorder;
  const auto result = train(job, *backend, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const auto measured = evaluate_model(w / "model", job.dataset, "", {"top_2_accuracy"}, *backend);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(measured->partition, "test");
  EXPECT_EQ(measured->rows, 45);
  std::map<std::string, double> values(measured->values.begin(), measured->values.end());
  int compared = 0;
  for (const MetricPoint& point : result->final_metrics) {
    if (!point.key.starts_with("test/")) continue;
    EXPECT_NEAR(values.at(point.key.substr(5)), point.value, 1e-6) << point.key;
    ++compared;
  }
  EXPECT_GE(compared, 2);
  EXPECT_GE(values.at("top_2_accuracy"), values.at("accuracy"));
  ASSERT_EQ(measured->confusion.size(), 3u);
  EXPECT_EQ(measured->target.classes.size(), 3u);

  const auto train_rows = evaluate_model(w / "model", job.dataset, "train", {}, *backend);
  EXPECT_EQ(train_rows->rows, 120);
  const auto unknown = evaluate_model(w / "model", job.dataset, "", {"r2"}, *backend);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("r2"), std::string::npos);
}

TEST(EvaluateModel, AMissingTestSetIsRefused) {
  const Workspace w;
  TrainJob job;
  job.dataset = testing::make_dataset(w, true, 60);
  job.model = testing::image_model(0.0);
  job.recipe.steps = 1;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.learning_rate = 0.05;
  job.checkpoints = w / "checkpoints";
  job.model_output = w / "model";
  const auto backend = make_cpu_backend(1);
  Recorder recorder;
  ASSERT_TRUE(train(job, *backend, local_files(), recorder, {}).ok());
  const auto measured = evaluate_model(w / "model", job.dataset, "test", {}, *backend);
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().reason, "EVALUATE_ROWS_MISSING");
}

TEST(ClassFigures, AreThoseOfTheTextbook) {
  // Label 0: 8 right, 2 predicted as 1. Label 1: 1 right, 3 predicted as 0. Label 2: no rows, never
  // predicted.
  const auto figures = class_figures({{8, 2, 0}, {3, 1, 0}, {0, 0, 0}});
  EXPECT_EQ(figures[0].rows, 10);
  EXPECT_DOUBLE_EQ(figures[0].precision, 8.0 / 11);
  EXPECT_DOUBLE_EQ(figures[0].recall, 0.8);
  EXPECT_DOUBLE_EQ(figures[0].f1, 16.0 / 21);
  EXPECT_DOUBLE_EQ(figures[1].precision, 1.0 / 3);
  EXPECT_DOUBLE_EQ(figures[1].recall, 0.25);
  EXPECT_EQ(figures[2].rows, 0);
  EXPECT_EQ(figures[2].f1, 0);
}

}  // namespace
}  // namespace trainyard
