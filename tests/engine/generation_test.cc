// Tests of generation with kept keys and values: its scores are those of the whole window, whatever
// the chunks, rows and earlier texts; and of what ends a text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/math/half.h"
#include "src/base/philox.h"
#include "src/inference/generator.h"
#include "src/inference/text_model.h"
#include "src/inference/text_output.h"
#include "src/inference/weight_storage.h"
#include "src/planning/generation_programs.h"
#include "tests/engine/random_model.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::letters_model;
using testing::small_gpt2;
using testing::Workspace;
using testing::write_random_model;

using Tokens = std::vector<int32_t>;

Tokens random_text(int64_t length, uint64_t seed) {
  Tokens text;
  for (int64_t i = 0; i < length; ++i) {
    text.push_back(
        1 + static_cast<int32_t>(math::philox_u32(seed, 1, 0, static_cast<uint64_t>(i)) % 16));
  }
  return text;
}

class Kept : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kContext = 150;  // two chunks and a part of one

  void SetUp() override {
    write_random_model(w_ / "model", letters_model(spec(), kContext));
    open();
  }
  void open() {
    Result<LoadedModel> model = read_model(w_ / "model");
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::make_unique<LoadedModel>(std::move(*model));
    auto window = open_window_text_model(*model_, 1, *backend_);
    ASSERT_TRUE(window.ok()) << window.error().message;
    window_ = std::move(*window);
  }
  static ModelSpec spec() { return GetParam() == "gpt2" ? small_gpt2() : testing::small_decoder(); }
  std::unique_ptr<TextModel> kept(int64_t rows, int64_t capacity = kContext) {
    auto opened =
        open_kept_text_model(*model_, rows, capacity, find_weight_storage(*model_), *backend_);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(*opened);
  }
  static std::vector<float> scores_of(TextModel& model, const std::vector<Tokens>& texts,
                                      int64_t row = 0) {
    EXPECT_TRUE(model.score(texts, {}).ok());
    std::vector<float> scores(static_cast<size_t>(model.scores()));
    model.read(row, scores);
    return scores;
  }
  std::vector<float> window_scores(const Tokens& text) { return scores_of(*window_, {text}); }

  static double difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0, largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
      largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return most / largest;
  }

  const Workspace w_;
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(2);
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<TextModel> window_;
};

TEST_P(Kept, ScoresAreThoseOfTheWholeWindow) {
  for (const int64_t length : {1, 2, 63, 64, 65, 66, 128, 129, 147}) {
    const auto model = kept(1);
    Tokens text = random_text(length, 3);
    for (int step = 0; step < 3; ++step) {
      EXPECT_LT(difference(scores_of(*model, {text}), window_scores(text)), 1e-5) << length;
      text.push_back(1 + static_cast<int32_t>(text.size()) % 16);
    }
  }
}

TEST_P(Kept, RowsOfDifferentLengthsDoNotMix) {
  const auto model = kept(3);
  std::vector<Tokens> texts = {random_text(5, 1), random_text(130, 2), random_text(1, 3)};
  for (int step = 0; step < 3; ++step) {
    for (int64_t r = 0; r < 3; ++r) {
      EXPECT_LT(
          difference(scores_of(*model, texts, r), window_scores(texts[static_cast<size_t>(r)])),
          1e-5)
          << r;
    }
    for (Tokens& text : texts) text.push_back(7);
  }
  texts[1].resize(130);  // another call, in which one text is shorter and one is another
  texts[0] = random_text(90, 9);
  model->restart();
  for (int64_t r = 0; r < 3; ++r) {
    EXPECT_LT(difference(scores_of(*model, texts, r), window_scores(texts[static_cast<size_t>(r)])),
              1e-5)
        << r;
  }
}

// A chat sends its whole history again: what is kept of it must give the same bits.
TEST_P(Kept, AnEarlierTextChangesNoBit) {
  const auto warm = kept(1);
  Tokens text = random_text(70, 4);
  for (int turn = 0; turn < 3; ++turn) {
    warm->restart();
    const auto cold = kept(1);
    for (int step = 0; step < 12; ++step) {
      EXPECT_EQ(scores_of(*warm, {text}), scores_of(*cold, {text})) << turn << " " << step;
      text.push_back(1 + (step + turn) % 16);
    }
  }
  text[20] = text[20] % 16 + 1;  // the beginning differs
  warm->restart();
  EXPECT_EQ(scores_of(*warm, {text}), scores_of(*kept(1), {text}));
}

TEST_P(Kept, SeesTheLastTokensOfALongText) {
  const auto model = kept(1);
  Tokens text = random_text(kContext + 40, 5);
  const auto last = [&](int64_t count) { return Tokens(text.end() - count, text.end()); };
  EXPECT_LT(difference(scores_of(*model, {text}), window_scores(last(kContext))), 1e-5);
  text.push_back(3);  // no room is left: the model goes on with the last half
  EXPECT_LT(difference(scores_of(*model, {text}), window_scores(last(kContext / 2))), 1e-5);
  text.push_back(9);
  EXPECT_LT(difference(scores_of(*model, {text}), window_scores(last(kContext / 2 + 1))), 1e-5);
  model->restart();  // a call with the same text sees all that fits again
  EXPECT_LT(difference(scores_of(*model, {text}), window_scores(last(kContext))), 1e-5);
}

TEST_P(Kept, AStoppedCallLeavesNothingWrong) {
  const auto model = kept(1);
  const Tokens text = random_text(100, 6);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(model->score(std::vector<Tokens>{text}, stop.get_token()).error().code,
            ErrorCode::kCancelled);
  model->restart();
  EXPECT_LT(difference(scores_of(*model, {text}), window_scores(text)), 1e-5);
}

// The step of a text has the same bits whatever other texts it is computed with.
TEST_P(Kept, ATextHasTheScoresOfEachTextAlone) {
  std::vector<Tokens> texts;
  for (size_t i = 0; i < kPromptsMax; ++i) texts.push_back({1 + static_cast<int32_t>(i)});
  const auto together = kept(std::ssize(texts));
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto alone = kept(1);
      Tokens text;
      std::vector<float> scores;
      for (const int32_t token : texts[i]) {
        text.push_back(token);
        scores = scores_of(*alone, {text});
      }
      EXPECT_EQ(scores_of(*together, texts, static_cast<int64_t>(i)), scores) << i;
    }
    for (Tokens& text : texts) text.push_back(1 + step);
  }
}

// --- weights in 16 bits ---

/// Rounds the matrices of the model in the folder.
void round_matrices(const std::filesystem::path& folder) {
  Result<LoadedModel> model = read_model(folder);
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<std::vector<float>> values;
  for (const TensorView& t : model->weights.tensors()) {
    const auto* from = reinterpret_cast<const float*>(t.bytes.data());
    values.emplace_back(from, from + t.type.shape.elements());
    if (t.type.shape.rank() != 2) continue;
    for (float& v : values.back()) v = math::widen(math::narrow<math::Bf16>(v));
  }
  std::vector<TensorView> views;
  for (const TensorView& t : model->weights.tensors()) {
    views.push_back({t.name, t.type, std::as_bytes(std::span(values[views.size()]))});
  }
  const Status written = write_model(local_files(), folder, model->info, views);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

TEST_P(Kept, WeightsThatFitAreStoredInSixteenBitsAndChangeNoBit) {
  EXPECT_TRUE(find_weight_storage(*model_).empty()) << "nothing would be lost";
  round_matrices(w_ / "model");
  open();
  const WeightStorage storage = find_weight_storage(*model_);
  const auto half = kept(1);
  auto wide = open_kept_text_model(*model_, 1, kContext, {}, *backend_);
  ASSERT_TRUE(wide.ok()) << wide.error().message;
  Tokens text = random_text(70, 8);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(scores_of(*half, {text}), scores_of(**wide, {text}));
    text.push_back(2);
  }
  const auto bytes = [&](const WeightStorage& how) {
    const auto programs = compile_generation(model_->info.model, model_->info.interface(), 1,
                                             kContext, backend_->traits(), how);
    int64_t sum = 0;
    for (const TensorInfo& t : programs->step.program.graph.tensors()) {
      if (t.role == Role::kParameter && t.type.shape.rank() == 2) sum += t.stored_bytes();
    }
    return sum;
  };
  EXPECT_LT(bytes(storage), bytes({}) * 3 / 4);
}

TEST_P(Kept, AModelThatComputesInSixteenBitsStoresItsMatricesSo) {
  model_->info.precision = Precision::kFp16;
  const WeightStorage storage = find_weight_storage(*model_);
  for (const TensorView& t : model_->weights.tensors()) {
    EXPECT_EQ(storage.contains(t.name), t.type.shape.rank() == 2) << t.name;
  }
  for (const auto& [name, stored] : storage) EXPECT_EQ(stored, Storage::kF16) << name;
  const auto half = kept(1);
  const Tokens text = random_text(70, 9);
  EXPECT_LT(difference(scores_of(*half, {text}), window_scores(text)), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Models, Kept, ::testing::Values("gpt2", "decoder"));

TEST(GenerationPrograms, FillNeitherHeadNorLastLayer) {
  const ModelInfo info = letters_model(small_gpt2(), 100);
  const auto programs = compile_generation(info.model, info.interface(), 2, 100, {});
  ASSERT_TRUE(programs.ok()) << programs.error().message;
  EXPECT_EQ(programs->fill_tokens, kFillTokens);
  verify(programs->fill.program);
  verify(programs->step.program);
  const auto has = [](const Program& program, std::string_view name) {
    return std::ranges::any_of(program.graph.nodes(),
                               [&](const Node& node) { return node.name.starts_with(name); });
  };
  EXPECT_TRUE(has(programs->step.program, "head"));
  EXPECT_FALSE(has(programs->fill.program, "head"));
  EXPECT_TRUE(has(programs->fill.program, "h0_mlp_fc"));
  EXPECT_FALSE(has(programs->fill.program, "h1_mlp_fc"));
  int64_t cache_bytes = 0;
  for (const TensorInfo& t : programs->step.program.graph.tensors()) {
    if (t.role == Role::kCache) cache_bytes += t.stored_bytes();
  }
  EXPECT_EQ(cache_bytes, 2 * 2 * 2 * 100 * 16 * 4);  // layers, keys and values, rows
  EXPECT_GE(programs->persistent_bytes(), cache_bytes);
}

TEST(GenerationPrograms, RefuseLayersThatNeedTheWholeText) {
  ModelInfo info = letters_model({}, 8);
  info.model.layers = {{"e", "Embedding", {}, {{"embedding_dim", int64_t{4}}}},
                       {"r", "LSTM", {}, {{"hidden_size", int64_t{4}}}},
                       {"l", "Linear", {}, {}}};
  const auto programs = compile_generation(info.model, info.interface(), 1, 8, {});
  ASSERT_FALSE(programs.ok());
  EXPECT_NE(programs.error().message.find("'r'"), std::string::npos) << programs.error().message;
}

// --- what ends a text ---

struct Answer {
  std::string text;
  int64_t tokens = 0, prompt_tokens = 0;
  Finish finish = Finish::kNone;
};

class Continues : public ::testing::Test {
 protected:
  void SetUp() override {
    write_random_model(w_ / "model", letters_model(small_gpt2(), 40));
    auto generator = Generator::open(w_ / "model", *backend_);
    ASSERT_TRUE(generator.ok()) << generator.error().message;
    generator_ = std::move(*generator);
  }
  Result<std::vector<Answer>> generate(const std::vector<std::string>& texts,
                                       const GenerateOptions& options) {
    std::vector<Prompt> prompts;
    for (const std::string& t : texts) prompts.push_back({.text = t});
    std::vector<Answer> answers(texts.size());
    const Status s = generator_->generate(prompts, options, {}, [&](const Continuation& part) {
      Answer& answer = answers[static_cast<size_t>(part.prompt)];
      EXPECT_EQ(answer.finish, Finish::kNone) << "a text goes on behind its end";
      answer.text += part.text;
      answer.tokens = part.tokens;
      answer.prompt_tokens = part.prompt_tokens;
      answer.finish = part.finish;
    });
    if (!s.ok()) return s.error();
    return answers;
  }
  Answer one(const std::string& text, const GenerateOptions& options) {
    auto answers = generate({text}, options);
    EXPECT_TRUE(answers.ok()) << answers.error().message;
    return answers.ok() ? answers->front() : Answer();
  }
  const Workspace w_;
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  std::unique_ptr<Generator> generator_;
};

constexpr Sampling kGreedy{.temperature = 0};

TEST_F(Continues, SeveralPromptsAtOnceAsEachAlone) {
  const GenerateOptions greedy{.tokens = 60, .sampling = kGreedy};  // beyond the context
  const auto together = generate({"abc", "p", "hijklmnophijklmnop"}, greedy);
  ASSERT_TRUE(together.ok()) << together.error().message;
  EXPECT_EQ((*together)[0].text, one("abc", greedy).text);
  EXPECT_EQ((*together)[1].text, one("p", greedy).text);
  EXPECT_EQ((*together)[2].text, one("hijklmnophijklmnop", greedy).text);
  EXPECT_EQ((*together)[2].prompt_tokens, 18);
  for (const Answer& a : *together) {
    EXPECT_EQ(a.finish, Finish::kLength);
    EXPECT_EQ(a.tokens, 60);
    EXPECT_EQ(a.text.size(), 60u);
  }
}

TEST_F(Continues, EqualPromptsAreSampledApart) {
  const auto same = generate({"abc", "abc"}, {.tokens = 40, .sampling = {.temperature = 3}});
  ASSERT_TRUE(same.ok());
  EXPECT_NE((*same)[0].text, (*same)[1].text);
  EXPECT_EQ((*same)[0].text, one("abc", {.tokens = 40, .sampling = {.temperature = 3}}).text);
}

TEST_F(Continues, EndsBeforeAStopString) {
  const std::string whole = one("abc", {.tokens = 30, .sampling = kGreedy}).text;
  const std::string stop = whole.substr(7, 3);
  const size_t at = whole.find(stop);
  Answer answer = one("abc", {.tokens = 30, .sampling = kGreedy, .stop = {"never", stop}});
  EXPECT_EQ(answer.text, whole.substr(0, at));
  EXPECT_EQ(answer.finish, Finish::kStopString);
  EXPECT_EQ(answer.tokens, static_cast<int64_t>(at + stop.size()));
  answer = one("abc", {.tokens = 30, .sampling = kGreedy, .stop = {"never"}});
  EXPECT_EQ(answer.text, whole);
  EXPECT_EQ(answer.finish, Finish::kLength);
}

TEST_F(Continues, RefusesOptionsByName) {
  const auto field = [&](const GenerateOptions& options) {
    const auto answers = generate({"a"}, options);
    return answers.ok() ? "" : answers.error().violations[0].field;
  };
  EXPECT_EQ(field({.tokens = 0}), "token_count");
  EXPECT_EQ(field({.sampling = {.min_p = -0.1}}), "min_p");
  EXPECT_EQ(field({.sampling = {.min_p = 1.1}}), "min_p");
  EXPECT_EQ(field({.sampling = {.repetition_penalty = 0}}), "repetition_penalty");
  EXPECT_EQ(field({.sampling = {.repetition_penalty = std::nan("")}}), "repetition_penalty");
  EXPECT_EQ(field({.stop = {"a", ""}}), "stop[1]");
  EXPECT_EQ(field({.stop = {std::string(257, 'a')}}), "stop[0]");
  EXPECT_EQ(field({.stop = std::vector<std::string>(17, "a")}), "stop");
}

TEST_F(Continues, AModelWithoutATemplateHasNoChats) {
  const std::vector<Prompt> prompts = {{.text = "", .messages = {{"user", "abc"}}}};
  const Status s = generator_->generate(prompts, {}, {}, [](const Continuation&) {});
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().reason, "MESSAGES_UNSUPPORTED");
}

// --- chats, with a model whose answers are known ---

class Chats : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::write_chat_model(w_ / "model", "Hi!", 60);
    auto generator = Generator::open(w_ / "model", *backend_);
    ASSERT_TRUE(generator.ok()) << generator.error().message;
    generator_ = std::move(*generator);
  }
  Result<Answer> generate(const Prompt& prompt, GenerateOptions options = {}) {
    options.sampling = kGreedy;
    Answer answer;
    const Status s =
        generator_->generate(std::span(&prompt, 1), options, {}, [&](const Continuation& part) {
          answer.text += part.text;
          answer.tokens = part.tokens;
          answer.prompt_tokens = part.prompt_tokens;
          answer.finish = part.finish;
        });
    if (!s.ok()) return s.error();
    return answer;
  }
  const Workspace w_;
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  std::unique_ptr<Generator> generator_;
};

TEST_F(Chats, AnAnswerEndsByItself) {
  const auto answer = generate({.text = "", .messages = {{"user", "Hello?"}}});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->text, "Hi!");
  EXPECT_EQ(answer->finish, Finish::kEnd);
  EXPECT_EQ(answer->tokens, 3);
  EXPECT_EQ(answer->prompt_tokens, 25);  // as transformers counts them
}

TEST_F(Chats, TheEndTokenIsIgnoredOnRequest) {
  const auto answer = generate({.text = "\n"}, {.tokens = 6, .ignore_end = true});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->text, "Hi!") << "special tokens have no text";
  EXPECT_EQ(answer->finish, Finish::kLength);
  EXPECT_EQ(answer->tokens, 6);
}

TEST_F(Chats, StopAtTheEndOfTheContext) {
  const auto answer = generate({.text = "\n"}, {.tokens = 500, .ignore_end = true});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->finish, Finish::kContext);
  EXPECT_EQ(answer->prompt_tokens + answer->tokens, 60);
  const auto refused = generate({.text = std::string(60, 'x')});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "PROMPT_TOO_LONG");
  EXPECT_NE(refused.error().message.find("at most 59"), std::string::npos)
      << refused.error().message;
}

TEST_F(Chats, MessagesOutOfTheTemplateAreRefused) {
  const auto refused = generate({.text = "", .messages = {{"robot", "Hello?"}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "CHAT_INVALID");
}

TEST(StopFilter, FindsStringsOverTheBordersOfTokens) {
  const auto all = [](const std::vector<std::string>& strings,
                      const std::vector<std::string>& parts) {
    StopFilter filter(strings);
    std::string text;
    for (size_t i = 0; i < parts.size() && !filter.has_stopped(); ++i) {
      text += filter.pass(parts[i], i + 1 == parts.size());
    }
    return text + (filter.has_stopped() ? "|" : "");
  };
  EXPECT_EQ(all({"\n\n"}, {"one\n", "two", "\n", "\nthree"}), "one\ntwo|");
  EXPECT_EQ(all({"END", "ND"}, {"xE", "N", "D"}), "x|") << "the first place counts";
  EXPECT_EQ(all({"abab"}, {"ab", "ac", "aba", "b"}), "abac|");
  EXPECT_EQ(all({"END"}, {"xE", "N"}), "xEN") << "what was kept back is shown at the end";
  EXPECT_EQ(all({"aab"}, {"aaa", "b"}), "a|");
  EXPECT_EQ(all({}, {"a", "b"}), "ab");
  StopFilter waits({"END"});
  EXPECT_EQ(waits.pass("xE", false), "x");
  EXPECT_EQ(waits.pass("y", false), "Ey");
}

}  // namespace
}  // namespace trainyard
