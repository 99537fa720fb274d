#include "src/data/table/column_names.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "src/base/text.h"

namespace trainyard {
namespace {

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

bool is_lower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }
bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80;
}

/// Returns whether a word of "orderNo" or "HTTPCode" begins at `i`.
bool begins_word(std::string_view name, size_t i) {
  if (i == 0 || !is_upper(name[i])) return false;
  return is_lower(name[i - 1]) ||
         (is_upper(name[i - 1]) && i + 1 < name.size() && is_lower(name[i + 1]));
}

// Words for what a row may be about.
constexpr std::array<std::string_view, 49> kSubjects = {
    "account",  "animal",   "case",        "child",      "client",  "cluster",     "company",
    "county",   "customer", "device",      "employee",   "family",  "firm",        "herd",
    "hospital", "house",    "household",   "individual", "invoice", "item",        "litter",
    "machine",  "member",   "observation", "operator",   "order",   "participant", "pat",
    "patient",  "person",   "player",      "product",    "pupil",   "record",      "respondent",
    "row",      "sample",   "school",      "sensor",     "serial",  "shop",        "site",
    "store",    "student",  "subj",        "subject",    "town",    "unit",        "user"};

// Words of kSubjects that are usual as the whole name of a column of categories or texts.
constexpr std::array<std::string_view, 13> kNamesOfKinds = {
    "account", "cluster", "company", "house",  "item", "operator", "order",
    "product", "record",  "row",     "sample", "shop", "unit"};

bool is_numbered_subject(std::string_view word, std::string_view ending) {
  return word.ends_with(ending) &&
         is_one_of(kSubjects, word.substr(0, word.size() - ending.size()));
}

/// Returns whether the word is "patientid", "rowno" or "patnr".
bool joins_subject(std::string_view word) {
  static constexpr std::array<std::string_view, 6> kEndings = {"id",  "no",     "nr",
                                                               "num", "number", "key"};
  return std::ranges::any_of(kEndings, [&](auto end) { return is_numbered_subject(word, end); });
}

bool is_tools_index(std::string_view lower_name) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "index", "rowid", "rownames", "row.names", "row_names", "rowname", "...1", "level_0"};
  return lower_name.starts_with("unnamed: 0") || is_one_of(kNames, lower_name);
}

}  // namespace

std::vector<std::string> words_of_name(std::string_view name) {
  std::vector<std::string> words;
  bool inside = false;
  for (size_t i = 0; i < name.size(); ++i) {
    if (!is_word_char(name[i])) {
      inside = false;
      continue;
    }
    if (!inside || begins_word(name, i)) words.emplace_back();
    inside = true;
    words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return words;
}

bool is_identifier_name(std::string_view name) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "id",   "ids", "uid",  "uuid",  "guid",   "pid",  "hid",
      "hhid", "row", "idno", "idnum", "idcode", "obsno"};
  static constexpr std::array<std::string_view, 9> kLastWords = {
      "id", "ids", "uid", "uuid", "guid", "pid", "hid", "hhid", "index"};
  const std::string small = lower(name);
  if (is_one_of(kNames, small) || is_tools_index(small)) return true;
  const std::vector<std::string> words = words_of_name(name);
  if (words.empty()) return false;
  // Splitting "GRID" gives one word, so that neither "paid" nor "GRID" is an identifier.
  if (words.size() > 1) return is_one_of(kLastWords, words.back());
  return is_numbered_subject(words[0], "id");
}

bool may_name_rows(std::string_view name) {
  static constexpr std::array<std::string_view, 15> kWords = {
      "obs", "observation", "idx", "no",  "nr",  "case",   "record", "key",
      "pk",  "serial",      "seq", "sno", "ssn", "recnum", "rownum"};
  static constexpr std::array<std::string_view, 8> kLastWords = {"no",  "nr",     "idx",  "key",
                                                                 "num", "number", "code", "nummer"};
  if (is_identifier_name(name) || is_subject_name(name)) return true;
  const std::vector<std::string> words = words_of_name(name);
  if (words.empty()) return false;
  if (words.size() == 1) return is_one_of(kWords, words[0]) || joins_subject(words[0]);
  const std::string_view last = words.back();
  if (last == "no" || last == "nr" || last == "idx") return true;
  return is_one_of(kLastWords, last) && is_one_of(kSubjects, words[words.size() - 2]);
}

bool is_subject_name(std::string_view name) {
  const std::vector<std::string> words = words_of_name(name);
  if (words.empty()) return false;
  if (words.size() == 1) {
    return (is_one_of(kSubjects, words[0]) && !is_one_of(kNamesOfKinds, words[0])) ||
           joins_subject(words[0]);
  }
  return is_identifier_name(name);
}

bool is_time_name(std::string_view name) {
  static constexpr std::array<std::string_view, 27> kWords = {
      "year",    "yr",       "years",    "month",  "months",    "day",    "days",
      "date",    "dates",    "datetime", "time",   "timestamp", "week",   "weeks",
      "hour",    "minute",   "quarter",  "period", "season",    "decade", "weekday",
      "airdate", "birthday", "yyyy",     "ymd",    "epoch",     "when"};
  const std::vector<std::string> words = words_of_name(name);
  if (words.empty()) return false;
  return is_one_of(kWords, words.back()) || words.front() == "date" || words.front() == "day";
}

bool may_count_up(std::string_view name) {
  static constexpr std::array<std::string_view, 25> kWords = {
      "age",    "amount",      "count",  "depth", "dist",  "distance", "dose",
      "height", "length",      "level",  "mark",  "marks", "points",   "price",
      "rank",   "ranking",     "rating", "score", "size",  "speed",    "t",
      "temp",   "temperature", "weight", "x"};
  if (is_time_name(name)) return true;
  const std::vector<std::string> words = words_of_name(name);
  return std::ranges::any_of(words, [](const auto& word) { return is_one_of(kWords, word); });
}

}  // namespace trainyard
