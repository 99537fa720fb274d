// Fuzzes the files of pretrained tokenizers: an accepted one must encode any UTF-8 text and decode
// any ids, and its templates must render.
#include <array>

#include "src/base/text.h"
#include "src/data/tokenizers/chat_families.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const std::string text(text_of(data, size));
  (void)template_digest(text);
  (void)PretrainedTokenizer::read(
      {{"tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {}}})"},
       {"tokenizer_config.json", text}});
  const Result<PretrainedTokenizer> tokenizer = PretrainedTokenizer::read({{"file", text}});
  if (!tokenizer.ok()) return 0;
  constexpr std::array<std::string_view, 4> kTexts = {
      "the cat  sat\non the mat's 12345", "", "\xc3\xa4\xe2\x96\x81\xf0\x9f\x98\x80 e\xcc\x81",
      "<s>[INST] <unk></s> \xef\xac\x81"};
  for (const std::string_view sample : kTexts) {
    std::vector<int32_t> tokens;
    std::vector<uint32_t> starts;
    tokenizer->encode(sample, true, tokens, &starts);
    TRAINYARD_CHECK(tokens.size() == starts.size(), "a place for each token");
    for (const uint32_t start : starts) TRAINYARD_CHECK(start <= sample.size(), "in the text");
    for (const int32_t token : tokens) {
      TRAINYARD_CHECK(token >= 0 && token < tokenizer->vocabulary_size(),
                      "an id of the vocabulary");
      (void)tokenizer->piece(token);
    }
    TRAINYARD_CHECK(is_utf8(tokenizer->decode(tokens)), "the decoded text is UTF-8");
  }
  return 0;
}
