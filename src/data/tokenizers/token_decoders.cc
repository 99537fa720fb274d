#include "src/data/tokenizers/token_decoders.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/data/tokenizers/byte_letters.h"

namespace trainyard {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

/// A step that treats each token alike.
class EachToken : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) apply_inside(token);
  }
};

class ByteLettersDecoder final : public EachToken {
 public:
  void apply_inside(std::string& token) const override {
    if (!is_utf8(token)) return;
    if (std::optional<std::string> bytes = bytes_of_letters(token)) token = *std::move(bytes);
  }
};

int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hexadecimal(token[3]);
  const int low = hexadecimal(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

/// In a list, successive bytes that are not UTF-8 together are U+FFFD each.
class ByteTokenDecoder final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes)) {
        out.push_back(bytes);
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back("\xef\xbf\xbd");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = byte_of_token(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
  void apply_inside(std::string& token) const override {
    if (const std::optional<char> byte = byte_of_token(token)) token.assign(1, *byte);
  }
};

class MetaspaceDecoder final : public DecoderStep {
 public:
  MetaspaceDecoder(std::string mark, bool drop_first)
      : mark_(std::move(mark)), drop_first_(drop_first) {}
  void apply(std::vector<std::string>& tokens) const override {
    if (tokens.empty()) return;
    std::string& first = tokens.front();
    if (drop_first_) replace_all(first, mark_, "");
    for (std::string& token : tokens) apply_inside(token);
  }
  void apply_inside(std::string& token) const override { replace_all(token, mark_, " "); }

 private:
  std::string mark_;
  bool drop_first_;
};

class ReplaceDecoder final : public EachToken {
 public:
  ReplaceDecoder(Pattern pattern, std::string by)
      : pattern_(std::move(pattern)), by_(std::move(by)) {}
  void apply_inside(std::string& token) const override {
    if (!is_utf8(token)) return;
    std::string out;
    size_t done = 0;
    pattern_.visit_matches(token, [&](size_t begin, size_t end) {
      out.append(token, done, begin - done).append(by_);
      done = end;
    });
    token = out.append(token, done);
  }

 private:
  Pattern pattern_;
  std::string by_;
};

class FuseDecoder final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, std::move(all));
  }
  void apply_inside(std::string&) const override {}
};

class StripDecoder final : public DecoderStep {
 public:
  StripDecoder(std::string text, size_t start, size_t stop)
      : text_(std::move(text)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      for (size_t i = 0; i < start_ && token.starts_with(text_); ++i) token.erase(0, text_.size());
      for (size_t i = 0; i < stop_ && token.ends_with(text_); ++i) {
        token.resize(token.size() - text_.size());
      }
    }
  }
  // It follows a step that makes one token of all, so that it changes only the ends of the text.
  void apply_inside(std::string&) const override {}

 private:
  std::string text_;
  size_t start_, stop_;
};

void clean_up(std::string& text) {
  static constexpr auto kRules = std::to_array<std::pair<std::string_view, std::string_view>>({
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  });
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class WordPieceDecoder final : public DecoderStep {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) join(tokens[i]);
      if (cleanup_) clean_up(tokens[i]);
    }
  }
  void apply_inside(std::string& token) const override {
    join(token);
    if (cleanup_) clean_up(token);
  }

 private:
  void join(std::string& token) const {
    if (token.starts_with(prefix_)) {
      token.erase(0, prefix_.size());
    } else {
      token.insert(0, " ");
    }
  }
  std::string prefix_;
  bool cleanup_;
};

class EndSuffixDecoder final : public DecoderStep {
 public:
  explicit EndSuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }
  void apply_inside(std::string& token) const override { replace_all(token, suffix_, " "); }

 private:
  std::string suffix_;
};

class BlanksDecoder final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  }
  void apply_inside(std::string& token) const override { token.insert(0, " "); }
};

/// Returns how many bytes at the begin of `bytes` are a character or the longest beginning of one,
/// and whether they are a whole one.
std::pair<size_t, bool> first_character(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true};
  size_t size = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    size = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    size = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    size = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < size; ++i) {
    if (i >= bytes.size() || at(i) < low || at(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {size, true};
}

}  // namespace

std::unique_ptr<const DecoderStep> make_byte_letters_decoder() {
  return std::make_unique<ByteLettersDecoder>();
}
std::unique_ptr<const DecoderStep> make_byte_token_decoder() {
  return std::make_unique<ByteTokenDecoder>();
}
std::unique_ptr<const DecoderStep> make_metaspace_decoder(std::string mark, bool drop_first) {
  return std::make_unique<MetaspaceDecoder>(std::move(mark), drop_first);
}
std::unique_ptr<const DecoderStep> make_replace_decoder(Pattern pattern, std::string by) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(by));
}
std::unique_ptr<const DecoderStep> make_fuse_decoder() { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<const DecoderStep> make_strip_decoder(std::string text, size_t start, size_t stop) {
  return std::make_unique<StripDecoder>(std::move(text), start, stop);
}
std::unique_ptr<const DecoderStep> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}
std::unique_ptr<const DecoderStep> make_end_suffix_decoder(std::string suffix) {
  return std::make_unique<EndSuffixDecoder>(std::move(suffix));
}
std::unique_ptr<const DecoderStep> make_blanks_decoder() {
  return std::make_unique<BlanksDecoder>();
}

std::string replace_invalid_utf8(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string text;
  while (!bytes.empty()) {
    const auto [size, whole] = first_character(bytes);
    text += whole ? bytes.substr(0, size) : std::string_view("\xef\xbf\xbd");
    bytes.remove_prefix(size);
  }
  return text;
}

}  // namespace trainyard
