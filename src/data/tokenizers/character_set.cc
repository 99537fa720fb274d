#include "src/data/tokenizers/character_set.h"

#include <algorithm>

#include "src/base/unicode.h"

namespace trainyard {
namespace {

// In the order of the numbers of UnicodeCategory.
constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// Oniguruma takes the superscript digits and the fractions of Latin-1 for parts of words.
bool is_word(char32_t c) {
  return is_word_part(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0xbc && c <= 0xbe);
}

}  // namespace

std::optional<uint32_t> find_categories(std::string_view name) {
  uint32_t found = 0;
  for (size_t i = 0; i < kCategoryNames.size(); ++i) {
    const bool same =
        kCategoryNames[i] == name || (name.size() == 1 && kCategoryNames[i].starts_with(name));
    if (same) found |= uint32_t{1} << i;
  }
  return found == 0 ? std::nullopt : std::optional(found);
}

bool is_unicode_word(char32_t c) {
  constexpr char32_t kNonJoiner = 0x200c;
  constexpr char32_t kJoiner = 0x200d;
  return is_word_part(c) || c == kNonJoiner || c == kJoiner;
}

char32_t fold_case(char32_t c) {
  constexpr char32_t kLongS = 0x17f;
  constexpr char32_t kFinalSigma = 0x3c2;
  constexpr char32_t kSigma = 0x3c3;
  if (c == kLongS) return U's';
  if (c == kFinalSigma) return kSigma;
  return lower_case(c);
}

void CharacterSet::finish() {
  for (CharacterSet& set : sets_) set.finish();
  for (CharacterSet& set : also_) set.finish();
  for (char32_t c = 0; c < 128; ++c) ascii_[c] = contains_slowly(c);
}

bool CharacterSet::contains_slowly(char32_t c) const {
  bool found = has(c);
  if (!found && ignores_case_) found = has(fold_case(c)) || has(upper_case(c));
  if (found) {
    found = std::ranges::all_of(also_, [c](const CharacterSet& set) { return set.contains(c); });
  }
  return found != negated_;
}

bool CharacterSet::has(char32_t c) const {
  if ((categories_ >> unicode_category(c) & 1) != 0) return true;
  for (const Range& range : ranges_) {
    if (c >= range.first && c <= range.last) return true;
  }
  for (const KindItem& item : kinds_) {
    const bool is = item.kind == Kind::kSpace ? is_white_space(c) : is_word(c);
    if (is != item.negated) return true;
  }
  return std::ranges::any_of(sets_, [c](const CharacterSet& set) { return set.contains(c); });
}

}  // namespace trainyard
