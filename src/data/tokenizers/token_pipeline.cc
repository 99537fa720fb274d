#include "src/data/tokenizers/token_pipeline.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {

struct TokenPipeline::Output {
  std::vector<int32_t>& ids;
  std::vector<uint32_t>* starts;

  void add(int32_t id, size_t start) {
    ids.push_back(id);
    if (starts != nullptr) starts->push_back(static_cast<uint32_t>(start));
  }
};

Status TokenPipeline::add_token(AddedToken token, const std::string& field) {
  if (token.content.empty()) return {};  // tokenizers ignores it too
  if (!is_utf8(token.content)) return tokenizer_error(field, "the token is not UTF-8");
  if (token.id < 0 || token.id >= TokenNames::kTokensMax) {
    return tokenizer_error(field, "the id " + std::to_string(token.id) + " is not from 0 to " +
                                      std::to_string(TokenNames::kTokensMax - 1));
  }
  const int32_t known = names->find(token.content);
  const std::string_view other = name(token.id);
  if ((known >= 0 && known != token.id) || (!other.empty() && other != token.content)) {
    return tokenizer_error(field,
                           "the token " + quoted_value(token.content) + " has the id " +
                               std::to_string(token.id) +
                               (known >= 0 ? ", but the model gives it " + std::to_string(known)
                                           : ", which belongs to " + quoted_value(other)));
  }
  const auto [it, added] = added_ids_.emplace(token.content, token.id);
  if (!added && it->second != token.id) {
    return tokenizer_error(field, "the token " + quoted_value(token.content) + " appears twice");
  }
  added_[token.id] = std::move(token);
  return {};
}

void TokenPipeline::finish() {
  for (auto& [id, token] : added_) {
    if (!token.normalized) {
      raw_.add(token, token.content);
      continue;
    }
    TextPieces pieces(token.content, 0, false);
    for (const auto& normalizer : normalizers) normalizer->apply(pieces);
    normalized_.add(token, pieces.text());
    token.decoded = pieces.text();  // as tokenizers does
  }
}

void TokenPipeline::encode(std::string_view text, bool special, std::vector<int32_t>& out,
                           std::vector<uint32_t>* starts) const {
  Output output{out, starts};
  size_t done = 0;
  for (const AddedTokenFinder::Match& match : raw_.find(text, special)) {
    encode_part(text.substr(done, match.begin - done), done, special, output);
    output.add(match.id, match.begin);
    done = match.end;
  }
  encode_part(text.substr(done), done, special, output);
}

void TokenPipeline::encode_part(std::string_view text, size_t offset, bool special,
                                Output& out) const {
  if (text.empty()) return;
  TextPieces pieces(text, offset, out.starts != nullptr);
  for (const auto& normalizer : normalizers) normalizer->apply(pieces);
  if (normalized_.empty()) return encode_pieces(pieces, out);
  size_t done = 0;
  const auto encode_until = [&](size_t end) {
    if (end == done) return;
    TextPieces part(pieces, {done, end});
    encode_pieces(part, out);
  };
  for (const AddedTokenFinder::Match& match : normalized_.find(pieces.text(), special)) {
    encode_until(match.begin);
    out.add(match.id, pieces.source_of(match.begin));
    done = match.end;
  }
  encode_until(pieces.text().size());
}

void TokenPipeline::encode_pieces(TextPieces& pieces, Output& out) const {
  for (const auto& cutter : pre_tokenizers) cutter->apply(pieces);
  PieceTokens tokens;
  for (const TextPieces::Range& range : pieces.ranges()) {
    const std::string_view word = pieces.text_of(range);
    const PieceTokens* found =
        word.size() <= WordCache::kWordBytesMax ? words_.find(word) : nullptr;
    if (found == nullptr) {
      tokens.ids.clear();
      tokens.begins.clear();
      encode_word(word, tokens);
      found = &tokens;
    }
    if (out.starts == nullptr) {
      out.ids.insert(out.ids.end(), found->ids.begin(), found->ids.end());
      continue;
    }
    for (size_t i = 0; i < found->ids.size(); ++i) {
      out.add(found->ids[i], pieces.source_of(range.begin + found->begins[i]));
    }
  }
}

void TokenPipeline::encode_word(std::string_view word, PieceTokens& tokens) const {
  model->encode(word, tokens);
  words_.store(word, tokens, 0, 0);
}

std::string TokenPipeline::decode(std::span<const int32_t> tokens) const {
  std::vector<std::string> texts;
  for (const int32_t token : tokens) {
    const std::string_view text = text_of_token(token);
    if (!text.empty()) texts.emplace_back(text);
  }
  for (const auto& step : decoders) step->apply(texts);
  std::string all;
  for (const std::string& text : texts) all += text;
  return replace_invalid_utf8(all);
}

std::string TokenPipeline::piece(int32_t token) const {
  std::string text(text_of_token(token));
  if (text.empty()) return text;
  for (const auto& step : decoders) step->apply_inside(text);
  return text;
}

const AddedToken* TokenPipeline::find_added(int32_t token) const {
  const auto it = added_.find(token);
  return it == added_.end() ? nullptr : &it->second;
}

std::string_view TokenPipeline::text_of_token(int32_t token) const {
  const AddedToken* added = find_added(token);
  return added != nullptr && !added->decoded.empty() ? std::string_view(added->decoded)
                                                     : name(token);
}

std::string_view TokenPipeline::name(int32_t token) const {
  if (const AddedToken* added = find_added(token)) return added->content;
  return names->name(token);
}

int32_t TokenPipeline::find(std::string_view name) const {
  const auto it = added_ids_.find(name);
  return it == added_ids_.end() ? names->find(name) : it->second;
}

int64_t TokenPipeline::size() const {
  const int64_t added = added_.empty() ? 0 : added_.rbegin()->first + 1;
  return std::max(names->size(), added);
}

}  // namespace trainyard
