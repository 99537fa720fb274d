#include "client/init/draft_parts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/text.h"
#include "src/data/table/column_facts.h"
#include "src/data/warnings.h"

namespace trainyard::init {
namespace {

constexpr size_t kClassesShown = 5;
constexpr double kLargestClassMax = 0.9;
constexpr int64_t kFewRows = 100;

/// Returns whether YAML reads the unquoted text as the same text: it has only letters, digits and a
/// few marks, and is no word with a meaning in YAML.
bool is_plain(std::string_view text) {
  static constexpr std::array<std::string_view, 9> kWords = {"true", "false", "null", "yes", "no",
                                                             "on",   "off",   "y",    "n"};
  if (text.empty() || std::ranges::find(kWords, lower(text)) != kWords.end()) return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inside = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/';
  };
  const bool begins =
      letter(text[0]) || text[0] == '_' || ((text[0] == '/' || text[0] == '.') && text.size() > 2);
  return begins && std::ranges::all_of(text, inside);
}

}  // namespace

std::string yaml_text(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string comment_text(std::string_view text) {
  std::string out;
  if (!is_utf8(text)) return quoted_value(text);
  while (!text.empty()) {
    const char32_t c = take_code_point(text);
    const bool breaks = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029;
    append_utf8(out, breaks ? U' ' : c);
  }
  return out;
}

std::string path_in(const std::filesystem::path& path, const std::filesystem::path& file) {
  const std::filesystem::path folder =
      std::filesystem::absolute(file).parent_path().lexically_normal();
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  const std::filesystem::path relative = whole.lexically_relative(folder);
  const bool below = !relative.empty() && *relative.begin() != "..";
  // An absolute path outside the file's folder stays absolute; a relative one stays relative.
  return path.is_absolute() && !below ? whole.string() : relative.string();
}

std::string shortened(std::string_view text) {
  constexpr size_t kBytesMax = 30;
  if (text.size() <= kBytesMax) return std::string(text);
  text = text.substr(0, kBytesMax);
  return std::string(text.substr(0, find_invalid_utf8(text).value_or(kBytesMax))) + "...";
}

std::string in_quotes(std::string_view text) { return "'" + shortened(text) + "'"; }

std::string yaml_list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out += (out.size() > 1 ? ", " : "") + yaml_text(text);
  return out + "]";
}

std::string few_digits(double value) {
  constexpr double kDigits = 1000;  // four digits, or all digits before the decimal point
  constexpr double kWholeMax = 1e15;
  if (value == 0 || std::abs(value) >= kWholeMax) return short_number(value);
  if (std::abs(value) >= kDigits) return std::to_string(std::llround(value));
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return short_number(std::round(value * scale) / scale);
}

std::string range_text(double low, double high) {
  const std::string from = few_digits(low), to = few_digits(high);
  if (from != to || low == high) return from + " to " + to;
  const auto all_digits = [](double value) {
    std::array<char, 64> text = {};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    return std::string(text.data(), end.ptr);
  };
  return all_digits(low) + " to " + all_digits(high);
}

std::string count_of(int64_t count, const std::string& noun) {
  if (count == 1) return "1 " + noun;
  const bool y = noun.ends_with("y");
  return grouped(count) + " " +
         (y ? noun.substr(0, noun.size() - 1) + "ies" : noun + (noun.ends_with("s") ? "es" : "s"));
}

namespace {

/// Returns text such as "3 classes: setosa (50), versicolor (50), virginica (50)". `rows` is empty
/// if the counts are not known.
std::string classes_text(const std::vector<std::string>& classes,
                         const std::vector<int64_t>& rows) {
  std::string text = count_of(std::ssize(classes), "class") + ": ";
  for (size_t k = 0; k < std::min(classes.size(), kClassesShown); ++k) {
    text += (k > 0 ? ", " : "") + shortened(classes[k]);
    if (!rows.empty()) text += " (" + grouped(rows[k]) + ")";
  }
  return text + (classes.size() > kClassesShown ? ", ..." : "");
}

}  // namespace

void describe_target(const DatasetSchema& schema, const DatasetStatistics& statistics,
                     const std::string& noun, JobDraft& draft) {
  draft.facts.rows = schema.train_rows;
  if (schema.target.kind == TargetSchema::Kind::kNumeric) {
    draft.target_says = "a number";
    if (const auto& t = statistics.target) {
      draft.target_says +=
          " from " + range_text(t->min, t->max) + ", on average " + few_digits(t->mean);
    }
  } else {
    const std::vector<int64_t>& rows = statistics.classes;
    draft.facts.classes = std::ssize(schema.target.classes);
    draft.target_says = classes_text(schema.target.classes, rows);
    const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const auto largest = std::ranges::max_element(rows);
    if (largest != rows.end() &&
        static_cast<double>(*largest) > kLargestClassMax * static_cast<double>(all)) {
      draft.notes.push_back(
          grouped(*largest) + " of " + count_of(all, noun) + " are of the class " +
          in_quotes(schema.target.classes[static_cast<size_t>(largest - rows.begin())]) +
          ": accuracy says little about the others. Check f1_macro, and consider "
          "model.loss: {softmax_cross_entropy: {class_weights: balanced}}.");
    }
    const int64_t rare = std::ranges::count_if(rows, [](int64_t n) { return n < kClassRowsMin; });
    if (rare > 0 && all >= kFewRows) {
      draft.notes.push_back(std::to_string(rare) + " of " + count_of(std::ssize(rows), "class") +
                            (rare == 1 ? " has" : " have") + " fewer than " +
                            std::to_string(kClassRowsMin) + " " + noun +
                            "s: a model can hardly learn them.");
    }
  }
  if (schema.train_rows < kFewRows) {
    draft.notes.push_back("Only " + count_of(schema.train_rows, noun) +
                          ": the result depends on which of them happen to be held out.");
  }
}

void add_token_fields(double words_mean, JobDraft& draft, bool subwords) {
  constexpr double kLongRows = 100;
  const int64_t length = words_mean > kLongRows ? 256 : 128;
  if (subwords) {
    draft.fields.push_back({"tokenizer", "bpe", "learns words, which have no spaces between them"});
    draft.fields.push_back({"vocabulary_size", "8000"});
  } else {
    draft.fields.push_back({"tokenizer", "word"});
    draft.fields.push_back({"vocabulary_size", "20000", "the most frequent words"});
  }
  draft.fields.push_back({"max_length", std::to_string(length),
                          std::string(subwords ? "tokens" : "words") +
                              " per row; longer rows are cut (the average is " +
                              std::to_string(static_cast<int64_t>(words_mean + 0.5)) + ")"});
}

}  // namespace trainyard::init
