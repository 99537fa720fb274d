#include "src/data/table/category_form.h"

#include <algorithm>
#include <array>
#include <bit>

#include "src/base/text.h"
#include "src/data/table/csv_cell.h"

namespace trainyard {
namespace {

struct BooleanWord {
  std::string_view text;  // in lower case
  BooleanWords words;
  bool value;
};

constexpr auto kBooleanWords = std::to_array<BooleanWord>({{"true", 1, true},
                                                           {"false", 1, false},
                                                           {"t", 1, true},
                                                           {"f", 1, false},
                                                           {"yes", 2, true},
                                                           {"no", 2, false},
                                                           {"y", 2, true},
                                                           {"n", 2, false},
                                                           {"on", 4, true},
                                                           {"off", 4, false},
                                                           {"1", kAllBooleanWords, true},
                                                           {"1.0", kAllBooleanWords, true},
                                                           {"0", kAllBooleanWords, false},
                                                           {"0.0", kAllBooleanWords, false}});
constexpr size_t kLongestWord = 5;

// The names of false and true, by pair.
constexpr std::array<std::array<const char*, 2>, 3> kBooleanNames = {
    {{"false", "true"}, {"no", "yes"}, {"off", "on"}}};

const BooleanWord* find_word(std::string_view text) {
  if (text.size() > kLongestWord) return nullptr;
  const std::string word = lower(text);
  const auto found = std::ranges::find(kBooleanWords, word, &BooleanWord::text);
  return found == kBooleanWords.end() ? nullptr : &*found;
}

bool is_number(std::string_view text) { return text.front() == '0' || text.front() == '1'; }

}  // namespace

BooleanWords boolean_words(std::string_view text) {
  const BooleanWord* word = find_word(text);
  return word == nullptr ? BooleanWords{0} : word->words;
}

std::optional<bool> boolean_value(std::string_view text, BooleanWords words) {
  const BooleanWord* word = find_word(text);
  if (word == nullptr || (word->words & words) == 0) return std::nullopt;
  return word->value;
}

BooleanWords common_boolean_words(const std::vector<std::string>& texts) {
  BooleanWords common = kAllBooleanWords;
  for (const std::string& text : texts) {
    common = static_cast<BooleanWords>(common & boolean_words(text));
    if (common == 0) return 0;
  }
  return std::ranges::all_of(texts, is_number) ? BooleanWords{0} : common;
}

CategoryForm form_of(const std::vector<std::string>& names) {
  if (names.empty()) return CategoryForm::kTexts;
  const CellReader cells;
  if (std::ranges::all_of(names, [&](const auto& name) { return cells.read(name).is_whole(); })) {
    return CategoryForm::kWholeNumbers;
  }
  return common_boolean_words(names) != 0 ? CategoryForm::kBooleans : CategoryForm::kTexts;
}

std::vector<std::string> boolean_names(const std::vector<std::string>& spellings) {
  const BooleanWords words = common_boolean_words(spellings);
  if (words == 0) return spellings;
  std::array<int, 2> counts = {};
  for (const std::string& text : spellings) {
    ++counts[boolean_value(text, words) == true ? 1 : 0];
  }
  if (counts[0] <= 1 && counts[1] <= 1) return spellings;
  const auto pair = static_cast<size_t>(std::countr_zero(words));
  std::vector<std::string> names;
  for (const std::string& text : spellings) {
    names.emplace_back(kBooleanNames[pair][boolean_value(text, words) == true ? 1 : 0]);
  }
  return names;
}

}  // namespace trainyard
