// The tests fail if the tokenizer of a GGUF file gives other tokens than the file it was made from,
// or if a table that is damaged or not understood is not refused by name.
#include "src/pretrained/gguf/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "src/data/tokenizers/byte_letters.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"
#include "tests/pretrained/gguf_builder.h"

namespace trainyard {
namespace {

using testing::GgufBuilder;
using testing::has;
using Tokens = std::vector<int32_t>;

/// The tables of a tokenizer; a test changes some of them.
struct Tables {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  int begin = -1, end = -1;
  std::function<void(GgufBuilder&)> more = [](GgufBuilder&) {};

  void add(const std::string& token, int32_t type = 1, float score = 0) {
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }
  int32_t id(std::string_view token) const {
    return static_cast<int32_t>(std::ranges::find(tokens, token) - tokens.begin());
  }
  std::string bytes() const {
    GgufBuilder file;
    file.set_text("tokenizer.ggml.model", model);
    if (!pre.empty()) file.set_text("tokenizer.ggml.pre", pre);
    file.set_texts("tokenizer.ggml.tokens", tokens);
    file.set_numbers("tokenizer.ggml.token_type", types);
    if (model == "llama") file.set_reals("tokenizer.ggml.scores", scores);
    if (!merges.empty()) file.set_texts("tokenizer.ggml.merges", merges);
    if (begin >= 0) file.set_number("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(begin));
    if (end >= 0) file.set_number("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end));
    more(file);
    return file.finish();
  }
};

Result<TokenizerFiles> files_of(const Tables& tables) {
  const std::string bytes = tables.bytes();
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(std::as_bytes(std::span(bytes))));
  return gguf_tokenizer(file);
}

PretrainedTokenizer read(const Tables& tables) {
  const auto files = files_of(tables);
  if (!files.ok()) throw std::runtime_error(files.error().message);
  auto tokenizer = PretrainedTokenizer::read(*files);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
  return *std::move(tokenizer);
}

std::string refusal(const Tables& tables) {
  const auto files = files_of(tables);
  return files.ok() ? "accepted" : files.error().message;
}

Tokens encode(const PretrainedTokenizer& tokenizer, std::string_view text, bool special = true) {
  Tokens tokens;
  tokenizer.encode(text, special, tokens);
  return tokens;
}

/// Tokens of all bytes, some pairs and special tokens.
Tables byte_tables(const std::string& pre = "gpt-2") {
  Tables t;
  t.pre = pre;
  t.add("<s>", 3);
  t.add("</s>", 3);
  t.begin = 0;
  t.end = 1;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    t.add(letters_of_bytes({&c, 1}));
  }
  for (const char* merge : {"1 2", "12 3", "a b", "\xc4\xa0 ab", "c d", "cd e"}) {
    t.merges.emplace_back(merge);
    std::string whole(merge);
    std::erase(whole, ' ');
    t.add(whole);
  }
  return t;
}

TEST(GgufTokenizer, CutsWordsByThePatternThatItsNameStandsFor) {
  const Tables gpt2 = byte_tables();
  EXPECT_EQ(encode(read(gpt2), "123 ab"), (Tokens{gpt2.id("123"), gpt2.id("\xc4\xa0"
                                                                          "ab")}));
  const Tables smollm = byte_tables("smollm");
  EXPECT_EQ(encode(read(smollm), "12"), (Tokens{smollm.id("1"), smollm.id("2")}));
  const Tables qwen = byte_tables("qwen2");
  EXPECT_EQ(encode(read(qwen), "12 ab"), (Tokens{qwen.id("1"), qwen.id("2"),
                                                 qwen.id("\xc4\xa0"
                                                         "ab")}));
  EXPECT_EQ(encode(read(qwen), "e\xcc\x81"), encode(read(qwen), "\xc3\xa9")) << "NFC";
  const Tables llama = byte_tables("llama-bpe");
  EXPECT_EQ(encode(read(llama), "1231"), (Tokens{llama.id("123"), llama.id("1")}));
  EXPECT_EQ(encode(read(byte_tables("tekken")), "12"), encode(read(qwen), "12"));
}

TEST(GgufTokenizer, WholeWordsAreTokensWithoutMergesWhereTheModelSaysSo) {
  for (const auto& [pre, whole] : {std::pair("llama-bpe", true), std::pair("dbrx", false)}) {
    Tables t = byte_tables(pre);
    t.add("xyz");
    EXPECT_EQ(encode(read(t), "xyz").size(), whole ? 1u : 3u) << pre;
  }
}

TEST(GgufTokenizer, AnUnknownNameOfAPatternIsRefused) {
  EXPECT_TRUE(has(refusal(byte_tables("default")),
                  "tokenizer.ggml.pre: 'default' is not supported, expected gpt-2, llama-bpe"));
  EXPECT_TRUE(has(refusal(byte_tables("")), "tokenizer.ggml.pre: is missing, expected gpt-2"));
  Tables t = byte_tables();
  t.model = "bert";
  EXPECT_EQ(refusal(t), "tokenizer.ggml.model: 'bert' is not supported, expected gpt2 or llama");
}

TEST(GgufTokenizer, TypesSayWhichTokensAreFoundInTexts) {
  Tables t = byte_tables();
  t.add("<tool>", 4);
  t.add("[PAD]", 5);
  const PretrainedTokenizer tokenizer = read(t);
  EXPECT_EQ(encode(tokenizer, "<s><tool>"), (Tokens{0, t.id("<tool>")}));
  EXPECT_EQ(encode(tokenizer, "<s><tool>", false),
            (Tokens{t.id("<"), t.id("s"), t.id(">"), t.id("<tool>")}))
      << "a special token is text, one of the user is not";
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(t.id("<tool>")));
  EXPECT_EQ(tokenizer.find("[PAD]"), std::nullopt) << "rows that no token uses";
  EXPECT_EQ(tokenizer.decode(Tokens{t.id("ab"), t.id("<tool>")}), "ab<tool>");
}

TEST(GgufTokenizer, BeginAndEndTokensAreAddedAsTheFileSays) {
  const auto prefix = [](const Tables& t) {
    const PretrainedTokenizer tokenizer = read(t);
    return Tokens(tokenizer.prefix().begin(), tokenizer.prefix().end());
  };
  EXPECT_EQ(prefix(byte_tables()), Tokens{});
  EXPECT_EQ(prefix(byte_tables("llama-bpe")), Tokens{0}) << "as llama.cpp does by default";
  Tables t = byte_tables("llama-bpe");
  t.more = [](GgufBuilder& f) { f.set_flag("tokenizer.ggml.add_bos_token", false); };
  EXPECT_EQ(prefix(t), Tokens{});
  t = byte_tables();
  t.more = [](GgufBuilder& f) {
    f.set_flag("tokenizer.ggml.add_bos_token", true);
    f.set_flag("tokenizer.ggml.add_eos_token", true);
  };
  EXPECT_EQ(prefix(t), Tokens{0});
  const PretrainedTokenizer tokenizer = read(t);
  EXPECT_EQ(Tokens(tokenizer.suffix().begin(), tokenizer.suffix().end()), Tokens{1});
  EXPECT_EQ(tokenizer.begin_token(), 0);
  EXPECT_EQ(tokenizer.end_token(), 1);
}

TEST(GgufTokenizer, GenerationStopsAtTheEndsOfTurnsToo) {
  Tables t = byte_tables();
  t.add("<|eot|>", 3);
  t.more = [&](GgufBuilder& f) {
    f.set_number("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(t.id("<|eot|>")));
    f.set_number("tokenizer.ggml.padding_token_id", ~uint32_t{0});
    f.set_text("tokenizer.chat_template", "{{ x }}");
  };
  const PretrainedTokenizer tokenizer = read(t);
  EXPECT_EQ(Tokens(tokenizer.stop_tokens().begin(), tokenizer.stop_tokens().end()),
            (Tokens{1, t.id("<|eot|>")}));
  EXPECT_EQ(tokenizer.padding_token(), std::nullopt);
  EXPECT_EQ(tokenizer.chat_template(), "{{ x }}");
}

/// Pieces of SentencePiece with bytes.
Tables piece_tables() {
  Tables t;
  t.model = "llama";
  t.pre = "";
  t.add("<unk>", 2);
  t.add("<s>", 3);
  t.add("</s>", 3);
  t.begin = 1;
  t.end = 2;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto at = static_cast<size_t>(byte);
    t.add(std::string("<0x") + kDigits[at / 16] + kDigits[at % 16] + ">", 6);
  }
  t.add("a", 1, -10);
  t.add("b", 1, -11);
  t.add("\xe2\x96\x81", 1, -12);
  t.add(
      "\xe2\x96\x81"
      "a",
      1, -1);
  t.add("ab", 1, -2);
  t.add(
      "\xe2\x96\x81"
      "ab",
      1, -3);
  return t;
}

TEST(GgufTokenizer, PiecesAreJoinedByTheirScores) {
  Tables t = piece_tables();
  const PretrainedTokenizer tokenizer = read(t);
  EXPECT_EQ(encode(tokenizer, "ab b"), (Tokens{t.id("\xe2\x96\x81"
                                                    "ab"),
                                               t.id("\xe2\x96\x81"), t.id("b")}));
  EXPECT_EQ(encode(tokenizer, "\xc3\xa9"),
            (Tokens{t.id("\xe2\x96\x81"), t.id("<0xC3>"), t.id("<0xA9>")}));
  EXPECT_EQ(Tokens(tokenizer.prefix().begin(), tokenizer.prefix().end()), Tokens{1});
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, "ab b")), "ab b");
  t.more = [](GgufBuilder& f) {
    f.set_flag("tokenizer.ggml.add_space_prefix", false);
    f.set_flag("tokenizer.ggml.add_bos_token", false);
  };
  EXPECT_EQ(encode(read(t), "ab"), Tokens{t.id("ab")});
  EXPECT_TRUE(read(t).prefix().empty());
  for (int i = 0; i < 3; ++i) t.add("[PAD" + std::to_string(i) + "]", 5);
  EXPECT_EQ(encode(read(t), "ab"), Tokens{t.id("ab")}) << "rows that no token uses come last";
}

TEST(GgufTokenizer, DamagedTablesAreNamed) {
  const auto with = [](auto change) {
    Tables t = byte_tables();
    change(t);
    return refusal(t);
  };
  EXPECT_TRUE(has(with([](Tables& t) { t.types.pop_back(); }),
                  "tokenizer.ggml.token_type: has 263 elements, expected 264, one for each token"));
  EXPECT_EQ(with([](Tables& t) { t.types[5] = 7; }),
            "tokenizer.ggml.token_type[5]: expected a number from 1 to 6");
  EXPECT_EQ(with([](Tables& t) { t.tokens[7] = "<s>"; }),
            "tokenizer.ggml.tokens[7]: '<s>' is there twice");
  EXPECT_EQ(with([](Tables& t) { t.tokens[7] = "\xff"; }),
            "tokenizer.ggml.tokens[7]: expected 1 to 1024 bytes of UTF-8");
  EXPECT_EQ(with([](Tables& t) { t.merges[0] = "1 2 3"; }),
            "tokenizer.ggml.merges[0]: expected two tokens with a blank between them");
  EXPECT_EQ(with([](Tables& t) { t.merges[1] = "a z"; }),
            "tokenizer.ggml.merges[1]: there is no token 'az'");
  EXPECT_EQ(with([](Tables& t) { t.end = 5000; }),
            "tokenizer.ggml.eos_token_id: is 5000, but there are 264 tokens");
  EXPECT_TRUE(has(with([](Tables& t) {
                    t.more = [](GgufBuilder& f) { f.set_flag("tokenizer.ggml.escapes", true); };
                  }),
                  "'tokenizer.ggml.escapes': it is not known whether"));
  EXPECT_TRUE(has(with([](Tables& t) {
                    t.more = [](GgufBuilder& f) {
                      f.set_flag("tokenizer.ggml.add_space_prefix", true);
                    };
                  }),
                  "tokenizer.ggml.add_space_prefix: is true, expected false"));
  Tables t = piece_tables();
  t.scores.pop_back();
  EXPECT_TRUE(has(refusal(t), "tokenizer.ggml.scores: has 264 elements, expected 265"));
  t.scores.clear();
  EXPECT_EQ(refusal(t), "tokenizer.ggml.scores: is missing");
}

}  // namespace
}  // namespace trainyard
