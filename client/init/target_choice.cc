#include "client/init/target_choice.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "client/init/column_fate.h"
#include "client/init/target_words.h"
#include "src/data/table/column_names.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_schema.h"

namespace trainyard::init {
namespace {

// The shares and counts by which values are judged, and the points that make a choice certain.
constexpr double kPresentMin = 0.5;  // a target that most rows lack is none
constexpr size_t kSettingsMax = 20;  // more different numbers are measured, not set
constexpr size_t kManyTimes = 3;     // a column has by far the most values
constexpr int kSureLead = 25, kSurePoints = 50, kLikelyLead = 12;
constexpr size_t kShownMax = 3;
constexpr int64_t kSparseRowsMin = 50;  // fewer rows are too few if most rows lack the target

struct Candidate {
  size_t column = 0;
  const ColumnProfile* profile = nullptr;
  std::vector<std::string> words;
  std::string letters;
  TargetWord word = TargetWord::kNone;
  bool time = false;                     // its name is that of a time
  bool sparse = false;                   // most rows lack it
  size_t from_left = 0, from_right = 0;  // among the candidates with a place

  /// Only the places of columns that are neither times nor inputs by their names count, and that
  /// most rows have.
  bool has_place() const { return !time && !sparse && word != TargetWord::kInput; }

  bool measured(int64_t rows) const {
    return profile->numeric() && !time && !sparse &&
           profile->texts.size() > std::min(kSettingsMax, static_cast<size_t>(rows) / 4);
  }
};

/// What the rules see besides the candidate itself.
struct Context {
  int64_t rows = 0;
  bool nameless = true;                     // the columns are called c0, c1 and so on
  bool people = false;                      // the rows are people, who have an age and a sex
  std::unordered_set<std::string> letters;  // of all columns
  std::map<std::string, int64_t> stems;     // of names that end with digits: how many have it
  std::map<std::string, int64_t> words;     // how many columns have each word
  std::vector<std::string> file_words;
  std::string file_letters;
  const Candidate* first_measured = nullptr;  // the leftmost that is not one of a numbered series
  size_t measured = 0;                        // number of measured candidates
  size_t switches = 0;                        // number of candidates with two values
  size_t most_values = 0, second_values = 0;  // the most different values of candidates
};

/// Returns the name without the digits at its end; empty if it has none.
std::string stem_of(const std::string& letters) {
  const size_t end = letters.find_last_not_of("0123456789");
  return end == letters.npos || end + 1 == letters.size() ? "" : letters.substr(0, end + 1);
}

std::string_view without_plural(std::string_view word) {
  return word.size() > 3 && word.ends_with('s') ? word.substr(0, word.size() - 1) : word;
}

// --- the rules -----------------------------------------------------------------------------------

bool is_last(const Context&, const Candidate& c) { return c.has_place() && c.from_right == 0; }
bool is_last_of_nameless(const Context& t, const Candidate& c) {
  return t.nameless && is_last(t, c);
}
bool is_first(const Context&, const Candidate& c) {
  return c.has_place() && c.from_left == 0 && c.from_right > 0;
}
bool is_second_last(const Context&, const Candidate& c) {
  return c.has_place() && c.from_right == 1 && c.from_left > 0;
}
/// A yes or no at the end is most often the answer, unless it is one of several switches.
bool is_last_switch(const Context& t, const Candidate& c) {
  return is_last(t, c) && c.profile->values.size() == 2 && t.switches == 1;
}
bool is_target(const Context&, const Candidate& c) { return c.word == TargetWord::kTarget; }
/// The name "y" says nothing beside x and z, which are coordinates.
bool is_outcome(const Context& t, const Candidate& c) {
  return c.word == TargetWord::kOutcome && !(c.letters == "y" && t.letters.contains("z"));
}
bool ends_as_outcome(const Context&, const Candidate& c) {
  return c.word == TargetWord::kOutcomeLast;
}
bool is_result(const Context&, const Candidate& c) { return c.word == TargetWord::kResult; }
bool is_input(const Context&, const Candidate& c) { return c.word == TargetWord::kInput; }
bool is_time(const Context&, const Candidate& c) { return c.time; }
/// Identifiers are texts or whole numbers; "child" may be its height.
bool is_subject(const Context&, const Candidate& c) {
  return is_subject_name(c.profile->name) && (!c.profile->numeric() || c.profile->counts.whole);
}
bool is_coordinate(const Context& t, const Candidate& c) {
  const bool one = c.letters == "x" || c.letters == "y" || c.letters == "z";
  return one && t.letters.contains("x") && t.letters.contains("y") && t.letters.contains("z");
}

bool is_only_measured(const Context& t, const Candidate& c) {
  return t.measured == 1 && c.measured(t.rows);
}
bool is_one_of_two_measured(const Context& t, const Candidate& c) {
  return t.measured == 2 && c.measured(t.rows);
}
/// After settings and groups come measurements, and of these often the outcome first.
bool is_first_measured(const Context& t, const Candidate& c) {
  return &c == t.first_measured && c.from_left > 0;
}
/// Counts and settings are whole; what was measured has fractions.
bool has_fractions(const Context&, const Candidate& c) {
  return c.profile->numeric() && !c.profile->counts.whole;
}
bool is_sparse(const Context&, const Candidate& c) { return c.sparse; }
bool has_most_values(const Context& t, const Candidate& c) {
  return c.profile->numeric() && c.profile->texts.size() == t.most_values &&
         t.most_values > kSettingsMax && t.most_values >= kManyTimes * t.second_values;
}
/// Whole numbers that rise from row to row are a list of settings, such as distances, or of times.
bool is_rising_grid(const Context& t, const Candidate& c) {
  return c.profile->numeric() && c.profile->counts.whole && c.profile->order.rises &&
         c.profile->present() == t.rows && c.profile->values.size() > 10;
}

/// The file is named after the column: "toxicity.csv", "penny_ages.csv".
bool names_file(const Context& t, const Candidate& c) {
  const std::string& name = c.letters;
  if (c.words.empty() || t.words.at(c.words.front()) > 1) return false;  // as do other columns
  if (name.size() >= 5 && t.file_letters.find(name) != std::string::npos) return true;
  if (name.size() >= 4 && t.file_letters.starts_with(name)) return true;
  return std::ranges::any_of(c.words, [&](const std::string& word) {
    return word.size() >= 3 && std::ranges::any_of(t.file_words, [&](const std::string& other) {
             return without_plural(word) == without_plural(other);
           });
  });
}

bool has_logarithm(const Context& t, const Candidate& c) {
  return t.letters.contains("l" + c.letters) || t.letters.contains("log" + c.letters);
}
bool is_logarithm(const Context& t, const Candidate& c) {
  return (c.letters.starts_with('l') && t.letters.contains(c.letters.substr(1))) ||
         (c.letters.starts_with("log") && t.letters.contains(c.letters.substr(3)));
}
bool is_square(const Context& t, const Candidate& c) {
  return c.letters.ends_with("sq") && t.letters.contains(c.letters.substr(0, c.letters.size() - 2));
}
/// A product is named after its factors: "y85educ" beside "y85" and "educ".
bool is_product(const Context& t, const Candidate& c) {
  for (size_t i = 3; i + 1 < c.letters.size(); ++i) {
    if (t.letters.contains(c.letters.substr(0, i)) && t.letters.contains(c.letters.substr(i))) {
      return true;
    }
  }
  return false;
}
/// A column such as y85 or d2004, which says in which year a row is.
bool is_year_switch(const Context&, const Candidate& c) {
  const std::string stem = stem_of(c.letters);
  const size_t digits = c.letters.size() - stem.size();
  return !stem.empty() && stem.size() <= 3 && (digits == 2 || digits == 4) &&
         c.profile->values.size() == 2;
}
/// A lag or a variant has a longer name: "pat1" beside "pat".
bool is_variant(const Context& t, const Candidate& c) {
  const std::string stem = stem_of(c.letters);
  return !stem.empty() && t.letters.contains(stem);
}
bool is_numbered(const Context& t, const Candidate& c) {
  const std::string stem = stem_of(c.letters);
  if (stem.empty() || t.letters.contains(stem)) return false;
  return t.stems.at(stem) >= 4;
}
/// One of several columns of the same kind: "price.heinz", "price.hunts", "price.stb".
bool is_of_family(const Context& t, const Candidate& c) {
  return c.words.size() > 1 && t.words.at(c.words.front()) >= 3;
}
bool has_variants(const Context& t, const Candidate& c) {
  const auto found = t.stems.find(c.letters);
  return found != t.stems.end() && found->second >= 2;
}

struct Rule {
  int points;
  std::string_view says;  // the reason for a choice; empty for rules that give none
  bool (*holds)(const Context&, const Candidate&);
};

// Names of targets outweigh everything; otherwise the place counts, and what the column is.
constexpr Rule kRules[] = {
    {80, "by its name", is_target},
    {45, "by its name", is_outcome},
    {30, "by its name", ends_as_outcome},
    {20, "by its name", is_result},
    {30, "as the last suitable column", is_last},
    {40, "as the last column of a table without names", is_last_of_nameless},
    {18, "as the first suitable column", is_first},
    {8, "as the last suitable column but one", is_second_last},
    {18, "as the last column, which has two values", is_last_switch},
    {30, "as the only measured column", is_only_measured},
    {10, "as a measured column", is_one_of_two_measured},
    {12, "as the first measured column", is_first_measured},
    {4, "", has_fractions},
    {15, "as the column with the most different values", has_most_values},
    {25, "because the file is named after it", names_file},
    {15, "because other columns are variants of it", has_variants},
    {12, "because its logarithm is a column too", has_logarithm},
    {10, "because it is the logarithm of a column", is_logarithm},
    {-60, "", is_time},
    {-50, "", is_sparse},
    {-40, "", is_subject},
    {-40, "", is_square},
    {-40, "", is_year_switch},
    {-35, "", is_product},
    {-30, "", is_rising_grid},
    {-30, "", is_coordinate},
    {-25, "", is_input},
    {-25, "", is_variant},
    {-12, "", is_numbered},
    {-12, "", is_of_family},
};

struct Ranked {
  const Candidate* candidate = nullptr;
  int points = 0;
  std::string_view why;
};

Ranked rank(const Context& table, const Candidate& candidate) {
  Ranked ranked{&candidate, 0, ""};
  int most = 0;
  for (const Rule& rule : kRules) {
    if (!rule.holds(table, candidate)) continue;
    ranked.points += rule.points;
    if (rule.points > most) {
      most = rule.points;
      ranked.why = rule.says;
    }
  }
  return ranked;
}

// --- the candidates ------------------------------------------------------------------------------

/// Returns whether an ingest would refuse values of a numeric target.
bool has_mistakes(const ColumnProfile& column) {
  const bool as_number =
      infer_target("", column.counts, column.values.size()) == TargetSchema::Kind::kNumeric;
  return as_number && (column.counts.texts > 0 || column.counts.not_finite > 0);
}

/// Returns the number of rows that have a value of the column, also one such as "None" that is a
/// class.
int64_t count_rows_with(const ColumnProfile& column) {
  return column.present() + count_marked_classes(column);
}

bool is_in_most_rows(const ColumnProfile& column, int64_t rows) {
  return static_cast<double>(count_rows_with(column)) >= kPresentMin * static_cast<double>(rows);
}

/// Returns whether the column is a few dates, each of several rows: a poor target, but one.
bool is_repeated_date(const ColumnProfile& column, int64_t rows) {
  return column.dates > 0 && column.dates == column.present() && is_in_most_rows(column, rows) &&
         column.texts.size() >= 2 && column.texts.size() <= kSettingsMax &&
         std::ssize(column.texts) * 2 <= column.present();
}

/// Returns whether a column can be a target: most rows or many have it, its values are neither all
/// equal nor all different, all are read, and it is neither an identifier nor a list of dates.
bool is_fit(const ColumnProfile& column, int64_t rows) {
  const size_t values =
      column.values.size() + (count_marked_classes(column) > 0 ? column.marks.size() : 0);
  if (values < 2 || has_only_single_rows(column)) return false;
  if (!is_in_most_rows(column, rows) && count_rows_with(column) < kSparseRowsMin) return false;
  if (is_identifier_name(column.name) || column.identifies_rows()) return false;
  if (column.numeric()) return !has_mistakes(column);
  return !find_column_trap(column.facts(rows)) && !column.has_other_dates() && column.dates == 0;
}

/// Returns whether a column with the name of a time has durations: "delivery_time" in fractions.
bool is_duration(const ColumnProfile& column, size_t words) {
  return words > 1 && column.numeric() && !column.counts.whole && !column.order.never_falls;
}

using Fits = bool (*)(const ColumnProfile& column, int64_t rows);

std::vector<Candidate> find_candidates(const TableProfile& table, Fits fits) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& column = table.columns[i];
    if (!fits(column, table.rows)) continue;
    Candidate& c = candidates.emplace_back();
    c.column = i;
    c.profile = &column;
    c.words = words_of_name(column.name);
    c.letters = letters_of_name(column.name);
    c.word = find_target_word(column.name);
    c.sparse = !is_in_most_rows(column, table.rows);
    c.time = is_time_name(column.name) && !is_duration(column, c.words.size());
  }
  const auto places = static_cast<size_t>(
      std::ranges::count_if(candidates, [](const Candidate& c) { return c.has_place(); }));
  size_t place = 0;
  for (Candidate& c : candidates) {
    if (!c.has_place()) continue;
    c.from_left = place++;
    c.from_right = places - place;
  }
  return candidates;
}

Context describe_table(const TableProfile& table, const std::vector<Candidate>& candidates,
                       std::string_view file) {
  Context context;
  context.rows = table.rows;
  const std::vector<std::string> numbered = numbered_names(table.columns.size());
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& column = table.columns[i];
    context.nameless = context.nameless && column.name == numbered[i];
    const std::string letters = letters_of_name(column.name);
    context.letters.insert(letters);
    ++context.stems[stem_of(letters)];
    for (const std::string& word : words_of_name(column.name)) ++context.words[word];
  }
  context.file_words = words_of_name(file);
  context.file_letters = letters_of_name(file);
  context.people = context.letters.contains("age") &&
                   (context.letters.contains("sex") || context.letters.contains("gender"));
  for (const Candidate& c : candidates) {
    const bool first = context.first_measured == nullptr && c.has_place();
    if (first && c.measured(table.rows) && !is_numbered(context, c)) context.first_measured = &c;
    context.measured += c.measured(table.rows) ? 1 : 0;
    context.switches += c.profile->values.size() == 2 ? 1 : 0;
    const size_t values = c.profile->texts.size();
    if (values > context.most_values) {
      context.second_values = std::exchange(context.most_values, values);
    } else {
      context.second_values = std::max(context.second_values, values);
    }
  }
  return context;
}

/// Returns whether the name means a target: "label" anywhere, "score" at either end of the table.
/// Words for results may mean inputs as well, and the class of people is often their social class.
bool is_clear(const Context& t, const Candidate& c) {
  if (t.people && c.letters == "class") return false;
  const bool outcome = c.word == TargetWord::kOutcome || c.word == TargetWord::kOutcomeLast;
  return c.word == TargetWord::kTarget || (outcome && (c.from_left == 0 || c.from_right == 0));
}

TargetChoice::Certainty certainty_of(const Context& table, const std::vector<Ranked>& ranked) {
  using enum TargetChoice::Certainty;
  const int lead = ranked.size() == 1 ? kSureLead : ranked[0].points - ranked[1].points;
  const bool clear = is_clear(table, *ranked[0].candidate);
  if (clear && lead >= kSureLead && ranked[0].points >= kSurePoints) return kSure;
  return lead >= kLikelyLead && ranked[0].points > 0 ? kLikely : kGuess;
}

}  // namespace

std::optional<TargetChoice> choose_target(const TableProfile& table, std::string_view file) {
  std::vector<Candidate> candidates = find_candidates(table, is_fit);
  if (candidates.empty()) candidates = find_candidates(table, is_repeated_date);
  if (candidates.empty()) return std::nullopt;
  const Context context = describe_table(table, candidates, file);
  std::vector<Ranked> ranked;
  for (const Candidate& c : candidates) ranked.push_back(rank(context, c));
  // Of equal columns, the last one comes first.
  std::ranges::stable_sort(ranked, [](const Ranked& a, const Ranked& b) {
    return std::pair(-a.points, b.candidate->column) < std::pair(-b.points, a.candidate->column);
  });
  TargetChoice choice;
  choice.certainty = certainty_of(context, ranked);
  choice.why = ranked[0].why.empty() ? "because no other column is more suitable" : ranked[0].why;
  for (const Ranked& r : ranked) {
    if (choice.columns.size() < kShownMax) choice.columns.push_back(r.candidate->column);
  }
  return choice;
}

std::string_view text_of(TargetChoice::Certainty certainty) {
  switch (certainty) {
    case TargetChoice::Certainty::kSure:
      return "sure";
    case TargetChoice::Certainty::kLikely:
      return "likely";
    case TargetChoice::Certainty::kGuess:
      return "a guess";
  }
  return "";
}

}  // namespace trainyard::init
