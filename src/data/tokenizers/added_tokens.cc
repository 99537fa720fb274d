#include "src/data/tokenizers/added_tokens.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/tokenizers/character_set.h"

namespace trainyard {
namespace {

/// Returns the begin of the last code point of a text that is not empty.
size_t last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::string_view last = text.substr(last_code_point(text));
  return is_unicode_word(take_code_point(last));
}
bool starts_with_word(std::string_view text) {
  return !text.empty() && is_unicode_word(take_code_point(text));
}

size_t strip_left(std::string_view text) {
  while (!text.empty()) {
    const size_t at = last_code_point(text);
    std::string_view last = text.substr(at);
    if (!is_white_space(take_code_point(last))) break;
    text = text.substr(0, at);
  }
  return text.size();
}
size_t white_space_bytes(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view next = rest;
    if (!is_white_space(take_code_point(next))) break;
    rest = next;
  }
  return text.size() - rest.size();
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string_view text) {
  if (text.empty()) return;
  trie_.add(text, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  first_[static_cast<uint8_t>(text[0])] = true;
}

std::vector<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text,
                                                            bool special) const {
  std::vector<Match> matches;
  if (empty()) return matches;
  size_t done = 0;  // the end of the last match
  for (size_t at = 0; at < text.size();) {
    if (!first_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    int32_t index = -1;
    size_t end = at;
    trie_.visit_prefixes(text.substr(at), [&](int32_t found, size_t bytes) {
      index = found;
      end = at + bytes;
    });
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    at = end;
    if (token.special && !special) continue;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.strip_left) begin = std::max(strip_left(text.substr(0, begin)), done);
    if (token.strip_right) end += white_space_bytes(text.substr(end));
    begin = std::max(begin, done);
    if (end <= begin) continue;
    matches.push_back({begin, end, token.id});
    done = end;
  }
  return matches;
}

}  // namespace trainyard
