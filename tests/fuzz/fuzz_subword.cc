// Fuzzes SentencePiece models: an accepted model must cut any UTF-8 text into tokens that spell
// that text.
#include <array>

#include "src/data/text/subword_model.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  if (size == 0) return 0;
  const TokenizerKind kind = data[0] % 2 == 0 ? TokenizerKind::kBpe : TokenizerKind::kUnigram;
  TextSchema schema;
  schema.tokenizer = kind;
  if (!set_subword_model(std::string(text_of(data + 1, size - 1)), schema).ok()) return 0;
  const std::vector<std::string> texts = token_texts(schema);
  TRAINYARD_CHECK(std::ssize(texts) == schema.vocabulary_size(), "a text for each token");
  const auto tokenizer = make_tokenizer(schema);
  constexpr std::array<std::string_view, 3> kTexts = {"the cat  sat\non the mat", "",
                                                      "\xc3\xa4\xe2\x96\x81\xf0\x9f\x98\x80 a"};
  for (const std::string_view text : kTexts) {
    std::vector<int32_t> tokens;
    tokenizer->encode(text, 1000, tokens);
    std::string spelled;
    for (const int32_t token : tokens) spelled += texts.at(static_cast<size_t>(token));
    TRAINYARD_CHECK(spelled == text, "tokens spell the text");
  }
  return 0;
}
