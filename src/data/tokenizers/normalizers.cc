#include "src/data/tokenizers/normalizers.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/data/tokenizers/byte_letters.h"

namespace trainyard {
namespace {

using Range = TextPieces::Range;
using Writer = TextPieces::Writer;

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

/// Calls visit(code_point, begin, end) for each code point of a piece, with offsets in the text.
template <typename Visit>
void visit_code_points(const TextPieces& pieces, Range range, Visit visit) {
  for (std::string_view rest = pieces.text_of(range); !rest.empty();) {
    const size_t begin = range.end - rest.size();
    const char32_t c = take_code_point(rest);
    visit(c, begin, range.end - rest.size());
  }
}

class FormRewriter final : public TextRewriter {
 public:
  explicit FormRewriter(UnicodeForm form) : form_(form) {}
  void apply(TextPieces& pieces) const override {
    if (is_ascii(pieces.text())) return;
    if (form_ == UnicodeForm::kNfc && is_quickly_nfc(pieces.text())) return;
    pieces.rewrite([&](Range range, Writer& out) {
      const std::string_view text = pieces.text_of(range);
      std::vector<size_t> parts = find_form_parts(text);
      parts.push_back(text.size());
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const std::string_view part = text.substr(parts[i], parts[i + 1] - parts[i]);
        if (part.size() == 1) {
          out.keep(range.begin + parts[i], range.begin + parts[i + 1]);
        } else {
          out.put(unicode_form(part, form_), range.begin + parts[i]);
        }
      }
    });
  }

 private:
  UnicodeForm form_;
};

/// Rewrites each code point by a function.
template <typename Each>
class EachRewriter final : public TextRewriter {
 public:
  explicit EachRewriter(Each each) : each_(each) {}
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](Range range, Writer& out) {
      visit_code_points(pieces, range,
                        [&](char32_t c, size_t begin, size_t end) { each_(c, begin, end, out); });
    });
  }

 private:
  Each each_;
};
template <typename Each>
std::unique_ptr<const TextRewriter> make_each(Each each) {
  return std::make_unique<EachRewriter<Each>>(each);
}

class PrependRewriter final : public TextRewriter {
 public:
  explicit PrependRewriter(std::string text) : text_(std::move(text)) {}
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](Range range, Writer& out) {
      if (range.size() == 0) return;
      out.put(text_, range.begin);
      out.keep(range.begin, range.end);
    });
  }

 private:
  std::string text_;
};

class ReplaceRewriter final : public TextRewriter {
 public:
  ReplaceRewriter(Pattern pattern, std::string by)
      : pattern_(std::move(pattern)), by_(std::move(by)) {}
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](Range range, Writer& out) {
      size_t done = range.begin;
      pattern_.visit_matches(pieces.text_of(range), [&](size_t begin, size_t end) {
        out.keep(done, range.begin + begin);
        out.put(by_, range.begin + begin);
        done = range.begin + end;
      });
      out.keep(done, range.end);
    });
  }

 private:
  Pattern pattern_;
  std::string by_;
};

class StripRewriter final : public TextRewriter {
 public:
  StripRewriter(bool left, bool right) : left_(left), right_(right) {}
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](Range range, Writer& out) {
      size_t first = range.end;
      size_t last = range.begin;
      visit_code_points(pieces, range, [&](char32_t c, size_t begin, size_t end) {
        if (is_white_space(c)) return;
        first = std::min(first, begin);
        last = end;
      });
      if (first < last) out.keep(left_ ? first : range.begin, right_ ? last : range.end);
    });
  }

 private:
  bool left_, right_;
};

class CharsmapRewriter final : public TextRewriter {
 public:
  explicit CharsmapRewriter(Charsmap map) : map_(std::move(map)) {}
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](Range range, Writer& out) {
      const std::string_view text = pieces.text_of(range);
      std::vector<size_t> begins = find_graphemes(text);
      begins.push_back(text.size());
      for (size_t i = 0; i + 1 < begins.size(); ++i) {
        put_grapheme(pieces, {range.begin + begins[i], range.begin + begins[i + 1]}, out);
      }
    });
  }

 private:
  /// A rule may be for a whole user-perceived character; else each of its code points is looked up.
  /// The first rule that matches a beginning replaces the whole, as in tokenizers.
  void put_grapheme(const TextPieces& pieces, Range range, Writer& out) const {
    constexpr size_t kRuleBytesMax = 5;
    if (range.size() <= kRuleBytesMax) {
      if (const auto found = map_.find_shortest(pieces.text_of(range))) {
        return out.put(found->in_place, range.begin);
      }
    }
    visit_code_points(pieces, range, [&](char32_t, size_t begin, size_t end) {
      if (const auto found = map_.find_shortest(pieces.text_of({begin, end}))) {
        out.put(found->in_place, begin);
      } else {
        out.keep(begin, end);
      }
    });
  }

  Charsmap map_;
};

class ByteLettersRewriter final : public TextRewriter {
 public:
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](Range range, Writer& out) {
      for (size_t at = range.begin; at < range.end; ++at) {
        out.put(letters_of_bytes(pieces.text().substr(at, 1)), at);
      }
    });
  }
};

bool is_dropped_by_nmt(char32_t c) {
  return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
         c == 0x9f;
}
bool is_blank_to_nmt(char32_t c) {
  return c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
         c == 0xfffd;
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

}  // namespace

std::unique_ptr<const TextRewriter> make_form_rewriter(UnicodeForm form) {
  return std::make_unique<FormRewriter>(form);
}

std::unique_ptr<const TextRewriter> make_lower_case_rewriter() {
  return make_each([](char32_t c, size_t begin, size_t, Writer& out) {
    std::string lowered;
    append_lower_case(lowered, c);
    out.put(lowered, begin);
  });
}

std::unique_ptr<const TextRewriter> make_accents_rewriter() {
  return make_each([](char32_t c, size_t begin, size_t end, Writer& out) {
    if (!is_mark(c)) out.keep(begin, end);
  });
}

std::unique_ptr<const TextRewriter> make_prepend_rewriter(std::string text) {
  return std::make_unique<PrependRewriter>(std::move(text));
}

std::unique_ptr<const TextRewriter> make_replace_rewriter(Pattern pattern, std::string by) {
  return std::make_unique<ReplaceRewriter>(std::move(pattern), std::move(by));
}

std::unique_ptr<const TextRewriter> make_strip_rewriter(bool left, bool right) {
  return std::make_unique<StripRewriter>(left, right);
}

std::unique_ptr<const TextRewriter> make_charsmap_rewriter(Charsmap map) {
  return std::make_unique<CharsmapRewriter>(std::move(map));
}

std::unique_ptr<const TextRewriter> make_nmt_rewriter() {
  return make_each([](char32_t c, size_t begin, size_t end, Writer& out) {
    if (is_dropped_by_nmt(c)) return;
    if (is_blank_to_nmt(c)) {
      out.put(" ", begin);
    } else {
      out.keep(begin, end);
    }
  });
}

std::unique_ptr<const TextRewriter> make_byte_letters_rewriter() {
  return std::make_unique<ByteLettersRewriter>();
}

void add_bert_rewriters(const BertSettings& settings, TextRewriters& out) {
  if (settings.clean_text) {
    out.push_back(make_each([](char32_t c, size_t begin, size_t end, Writer& writer) {
      const bool kept = c == '\t' || c == '\n' || c == '\r';
      if (c == 0 || c == 0xfffd || (!kept && is_other(c))) return;
      if (c != ' ' && is_white_space(c)) {
        writer.put(" ", begin);
      } else {
        writer.keep(begin, end);
      }
    }));
  }
  if (settings.split_chinese) {
    out.push_back(make_each([](char32_t c, size_t begin, size_t end, Writer& writer) {
      if (is_ideograph(c)) writer.put(" ", begin);
      writer.keep(begin, end);
      if (is_ideograph(c)) writer.put(" ", begin);
    }));
  }
  if (settings.strip_accents) {
    out.push_back(make_form_rewriter(UnicodeForm::kNfd));
    out.push_back(make_each([](char32_t c, size_t begin, size_t end, Writer& writer) {
      if (!is_nonspacing_mark(c)) writer.keep(begin, end);
    }));
  }
  if (settings.lower_case) out.push_back(make_lower_case_rewriter());
}

}  // namespace trainyard
