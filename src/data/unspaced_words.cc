#include "src/data/unspaced_words.h"

#include <cmath>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/data/text/word_break.h"

namespace trainyard {

std::optional<DataWarning> find_unspaced_words(const TextSchema& text, const TypedRows& rows) {
  constexpr double kShareMin = 0.2;
  if (text.tokenizer != TokenizerKind::kWord) return std::nullopt;
  std::vector<bool> alone(static_cast<size_t>(text.first_piece_id()), false);
  for (std::string_view piece : text.pieces) {
    alone.push_back(word_break_of(take_code_point(piece)) == WordBreak::kAlone);
  }
  int64_t words = 0;
  int64_t single = 0;
  for (const int32_t token : rows.tokens) {
    if (token == text.padding_id()) continue;
    ++words;
    single += alone[static_cast<size_t>(token)] ? 1 : 0;
  }
  if (words == 0) return std::nullopt;
  const double share = static_cast<double>(single) / static_cast<double>(words);
  if (share < kShareMin) return std::nullopt;
  return DataWarning{
      std::string(kWordsWithoutSpaces),
      {},
      single,
      std::to_string(std::lround(share * 100)) +
          " % of the words are single characters: Chinese, Japanese, Thai, Lao, Khmer and Burmese "
          "do not put spaces between words. Use tokenizer: bpe or unigram, which learns the "
          "frequent words from the text."};
}

}  // namespace trainyard
