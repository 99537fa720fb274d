// Drafts for tables: which column is the target, which columns are left out, and how the others are
// used. There are two passes. column_profile.h decides what can be read at all; then the ingest's
// own reader and its search for traps examine the rest, so that an ingest accepts the draft.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "client/init/cell_settings.h"
#include "client/init/column_fate.h"
#include "client/init/column_profile.h"
#include "client/init/draft_parts.h"
#include "client/init/table_head.h"
#include "client/init/table_notes.h"
#include "client/init/target_choice.h"
#include "client/init/target_words.h"
#include "client/init/text_worth.h"
#include "src/base/grouped.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/statistics.h"
#include "src/data/table/column_names.h"
#include "src/data/table/csv_schema.h"
#include "src/data/target_leak.h"
#include "src/data/typed_dataset.h"
#include "src/data/unspaced_words.h"
#include "src/data/warnings.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;
using Use = ColumnNote::Use;
using Fate = Decision::Fate;

// Without a comparison, even long text is left out beside more other columns.
constexpr size_t kOthersOfTextMax = 3;

std::string list_columns(const TableProfile& table) {
  constexpr size_t kShownMax = 30;
  std::vector<std::string> names;
  for (const ColumnProfile& c : table.columns) {
    if (names.size() == kShownMax) break;
    names.push_back(quoted_value(c.name));
  }
  return joined(names, ", ") + (table.columns.size() > kShownMax ? ", ..." : "");
}

/// The target, and how it was chosen if the user did not name it.
struct Target {
  size_t column = 0;
  std::optional<TargetChoice> choice = {};
};

Result<Target> find_target(const TableProfile& table, const std::string& wish,
                           const std::string& file) {
  std::vector<std::string> names;
  for (const ColumnProfile& c : table.columns) names.push_back(c.name);
  if (!wish.empty()) {
    const auto at = std::ranges::find(names, nfc(wish));
    if (at != names.end()) return Target{static_cast<size_t>(at - names.begin())};
    const std::optional<std::string> near =
        wish.size() < 3 ? std::nullopt : nearest_name(wish, names);
    return make_error(ErrorCode::kInvalidArgument, "TARGET_UNKNOWN",
                      "--target: " + quoted_value(wish) + " is not a column" +
                          (near ? "; did you mean " + quoted_value(*near) + "? The" : "; the") +
                          " columns are " + list_columns(table));
  }
  if (const auto choice = choose_target(table, file)) return Target{choice->columns[0], choice};
  return make_error(ErrorCode::kInvalidArgument, "TARGET_UNKNOWN",
                    "no column looks like a target: each has a single value, a different value in "
                    "each row, free text, or no value in most rows; name one with --target. The "
                    "columns are " +
                        list_columns(table));
}

class TableDraft {
 public:
  /// `options` name the target, and `table` has the rows that they do not skip; `missing` others
  /// have no target.
  TableDraft(CsvOptions options, TableProfile table, size_t target, int64_t missing)
      : options_(std::move(options)), table_(std::move(table)), target_(target), missing_(missing) {
    const ColumnProfile& c = table_.columns[target_];
    options_.target_kind = predicts_classes(c) ? "class" : "numeric";
    for (size_t i = 0; i < table_.columns.size(); ++i) {
      index_.emplace(table_.columns[i].name, i);
      decisions_.push_back(i == target_ ? Decision() : decide(table_.columns[i], table_.rows));
    }
  }

  /// Reads the rows as an ingest would, and leaves out columns that prove to be traps.
  Status read(const Head& head) {
    side_ = pixel_side(table_, target_);
    if (side_ > 0) options_.image = {1, side_, side_};
    if (side_ == 0) {
      ASSIGN_OR_RETURN(const bool from_text, learns_from_text(head));
      if (from_text) options_.text = names_of(Fate::kText);
    }
    if (options_.text.empty() && side_ == 0) {
      leave_out_texts();
      options_.ignore = names_of(Fate::kLeftOut);
      options_.categorical = names_of(Fate::kMixed);
      options_.date = names_of(Fate::kDate);
      if (std::ssize(options_.ignore) + 1 == std::ssize(table_.columns)) return nothing_left();
    }
    drop_unused_numbers();
    ASSIGN_OR_RETURN(data_, read_csv_dataset(options_, head.path, {}));
    statistics_ = measure(data_.schema, data_.train);
    if (data_.schema.kind == DatasetSchema::Kind::kTabular) return leave_out_traps();
    return {};
  }

  JobDraft finish(const Head& head) {
    const DatasetSchema& schema = data_.schema;
    describe_target(schema, statistics_, "row", draft_);
    draft_.format = options_.json_lines ? "jsonl" : "csv";
    draft_.target = options_.target;
    draft_.facts.rows = estimate_rows(head, schema.train_rows);
    draft_.facts.kind = schema.kind == DatasetSchema::Kind::kText    ? DataFacts::Kind::kTextRows
                        : schema.kind == DatasetSchema::Kind::kImage ? DataFacts::Kind::kImages
                                                                     : DataFacts::Kind::kTable;
    draft_.facts.image = schema.image;
    describe_columns();
    add_fields();
    for (const DataWarning& warning : schema.warnings) add_cell_note(warning);
    draft_.found = (options_.json_lines ? "JSON lines with " : table_name()) + rows_text(head) +
                   " and " + count_of(std::ssize(table_.columns), "column");
    if (side_ > 0) {
      draft_.found +=
          ", the pixels of images of " + std::to_string(side_) + " x " + std::to_string(side_);
    }
    if (!options_.json_lines && !options_.header) {
      draft_.notes.push_back(
          "no header was found: the first row is read as data, and the columns are named c0, c1 "
          "and so on. If it is a header, remove `header: false` from the job file, and name the "
          "target as the header does.");
    }
    if (missing_ > 0) {
      draft_.notes.push_back(count_of(missing_, "row") + " without a target: left out.");
    }
    add_notes();
    return std::move(draft_);
  }

 private:
  std::vector<std::string> names_of(Fate fate) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < decisions_.size(); ++i) {
      if (i != target_ && decisions_[i].fate == fate) names.push_back(table_.columns[i].name);
    }
    return names;
  }

  /// Returns whether to learn from text alone instead of from the other columns: if there are no
  /// others, or if the text is long and a quick comparison predicts better from it.
  Result<bool> learns_from_text(const Head& head) {
    WorthColumns columns{
        table_.columns.size(), target_, options_.target_kind == "class", {}, {}, {}};
    double words = 0;
    for (size_t i = 0; i < decisions_.size(); ++i) {
      if (i == target_) continue;
      const ColumnProfile& c = table_.columns[i];
      const Fate fate = decisions_[i].fate;
      if (fate == Fate::kText) {
        words = std::max(words, c.words_mean());
        columns.texts.push_back(i);
      } else if (fate != Fate::kLeftOut && !is_identifier_name(c.name)) {
        (fate == Fate::kNumber ? columns.numbers : columns.categories).push_back(i);
      }
    }
    const size_t others = columns.numbers.size() + columns.categories.size();
    if (words == 0 || others == 0) return words > 0;
    if (words < kLongTextWords) return false;
    ASSIGN_OR_RETURN(worth_, compare_text(options_, head.path, columns));
    return worth_ ? worth_->texts > worth_->columns : others <= kOthersOfTextMax;
  }

  void leave_out_texts() {
    for (Decision& d : decisions_) {
      if (d.fate != Fate::kText) continue;
      d.fate = Fate::kLeftOut;
      d.why += "; if listed in `text`, the model learns from it in place of the columns";
    }
  }

  Error nothing_left() const {
    std::string reasons;
    for (size_t i = 0; i < decisions_.size() && reasons.size() < 1000; ++i) {
      if (i == target_) continue;
      reasons += "; " + quoted_value(table_.columns[i].name) + ": " + decisions_[i].why;
    }
    return unsupported("no column other than the target " + quoted_value(options_.target) +
                       " can be learned from" + reasons);
  }

  /// Leaves only columns in `numbers` that are read as numbers.
  void drop_unused_numbers() {
    std::erase_if(options_.numbers, [&](const std::string& name) {
      const bool columns = options_.text.empty() && side_ == 0;
      return name != options_.target && !(columns && decision_of(name).fate == Fate::kNumber);
    });
  }

  Decision& decision_of(const std::string& name) { return decisions_[index_.at(name)]; }

  int64_t count_features() const {
    return std::ranges::count_if(decisions_,
                                 [](const Decision& d) { return d.fate != Fate::kLeftOut; }) -
           1;  // minus the target
  }

  /// Leaves out columns that ingest would warn about (a ColumnTrap) or that reveal the target. The
  /// last remaining column stays, with a note.
  Status leave_out_traps() {
    int64_t features = count_features();
    const auto leave_out = [&](const std::string& name, const std::string& why) {
      Decision& d = decision_of(name);
      if (d.fate == Fate::kLeftOut) return;
      if (features > 1) {
        d = {Fate::kLeftOut, why};
        --features;
      } else {
        draft_.notes.push_back("column " + in_quotes(name) + " " + why +
                               ". It is kept as the only column to learn from.");
      }
    };
    for (const ColumnFacts& facts : find_column_facts(data_.schema, statistics_, data_.train)) {
      const std::optional<ColumnTrap> trap = find_column_trap(facts);
      if (!trap) continue;
      const bool says_nothing = trap == ColumnTrap::kConstant || trap == ColumnTrap::kEmpty;
      if (says_nothing && features == 1) {
        decision_of(facts.name) = {Fate::kLeftOut, trap_text(*trap, facts)};
        return nothing_left();
      }
      leave_out(facts.name, trap_text(*trap, facts));
    }
    for (const TargetLeak& leak :
         find_target_leaks(data_.schema, statistics_, data_.train.view())) {
      leave_out(leak.column, leak.finding);
    }
    return {};
  }

  /// Adds the notes about the target and the rows.
  void add_notes() {
    const ColumnProfile& target = profile_of(options_.target);
    if (target.dates > 0 && target.dates == target.present()) {
      draft_.notes.push_back(
          "The target " + in_quotes(target.name) + " has dates, such as " +
          in_quotes(target.example) +
          ": each different date is a class of its own, and a date that no row has can never be "
          "predicted. To predict a time, store it as a number, such as the days until then.");
    }
    add_text_note();
    for (const auto& note : {note_on_groups(table_, target_), note_on_time(table_, target_)}) {
      if (note) draft_.notes.push_back(*note);
    }
  }

  /// Adds what it costs that a text model reads only text, and other models no text.
  void add_text_note() {
    constexpr size_t kShownMax = 8;
    const bool from_text = !options_.text.empty();
    std::vector<std::string> unused;
    for (size_t i = 0; i < decisions_.size(); ++i) {
      const Fate fate = decisions_[i].fate;
      const bool other = fate != Fate::kText && fate != Fate::kLeftOut;
      if (i != target_ && other) unused.push_back(in_quotes(table_.columns[i].name));
    }
    if (!worth_ && (!from_text || unused.empty())) return;
    const size_t count = unused.size();
    unused.resize(std::min(count, kShownMax));
    std::string note =
        from_text
            ? "A text model reads only text, so " +
                  count_of(static_cast<int64_t>(count), "column") + (count == 1 ? " is" : " are") +
                  " not used: " + joined(unused, ", ") + (count > kShownMax ? ", ..." : "") + "."
            : "The long text is not used, because a model reads either text or columns.";
    if (worth_) note += " " + worth_text();
    draft_.notes.push_back(note + (from_text ? " To learn from the columns instead, list those of "
                                               "`text` in `ignore`, remove `text`, `tokenizer`, "
                                               "`vocabulary_size` and `max_length`, and choose "
                                               "`model: {mlp: {hidden: [128]}}`."
                                             : " To learn from the text instead, list its column "
                                               "in `text` and remove the other lists."));
  }

  std::string worth_text() const {
    const auto percent = [](double share) {
      return std::to_string(std::lround(100 * share)) + " %";
    };
    return "In a quick comparison (naive Bayes, " + grouped(worth_->rows) +
           " held-out rows), the words alone predict " + percent(worth_->texts) +
           (options_.target_kind == "class" ? " of the classes"
                                            : " of the answers to whether it is above its median") +
           " right, the other columns " + percent(worth_->columns) + ".";
  }

  std::string number_text(const ColumnSchema& column, const NumberStatistics& s) {
    std::string text = "number, " + range_text(s.min, s.max);
    const ColumnProfile& profile = profile_of(column.name);
    if (profile.counts.whole && profile.values.size() > 2 && profile.values.size() <= 10) {
      text += ", " + std::to_string(profile.values.size()) + " different ones";
    }
    return text;
  }

  /// Says what a date column holds, by its last part: only times have a place in the day.
  static std::string date_text(const ColumnSchema& part) {
    if (part.date_order == DateOrder::kTime) return "times";
    return part.name.ends_with(".day_cos") ? "dates and times, the hours in UTC" : "dates";
  }

  std::string category_text(const ColumnSchema& column) {
    constexpr int64_t kListedMax = 4;
    std::string text = count_of(std::ssize(column.categories), "category");
    if (std::ssize(column.categories) > kListedMax) return text;
    for (size_t i = 0; i < column.categories.size(); ++i) {
      text += (i > 0 ? ", " : ": ") + shortened(column.categories[i]);
    }
    return text;
  }

  /// Describes by name what the columns that are learned from contain, and counts their inputs.
  void describe_columns() {
    std::map<std::string, std::string> says;
    size_t number = 0;
    for (const ColumnSchema& column : data_.schema.columns) {
      const std::string& name = column.date.empty() ? column.name : column.date;
      std::string text;
      int64_t inputs = 1;
      if (column.kind == ColumnSchema::Kind::kCategorical) {
        text = category_text(column);
        inputs = std::ssize(column.categories);
      } else if (column.kind == ColumnSchema::Kind::kText) {
        text = "text, " + short_number(std::round(profile_of(name).words_mean())) +
               " words on average";
      } else {
        const auto& s = statistics_.numeric[number++];
        text = !column.date.empty() ? date_text(column) : s ? number_text(column, *s) : "number";
      }
      if (column.missing_count > 0) text += ", " + grouped(column.missing_count) + " missing";
      says[name] = text;
      if (decision_of(name).fate != Fate::kLeftOut) draft_.facts.inputs += inputs;
    }
    for (size_t i = 0; i < table_.columns.size(); ++i) {
      const std::string& name = table_.columns[i].name;
      if (i == target_) {
        draft_.columns.push_back({Use::kTarget, name, draft_.target_says});
      } else if (side_ > 0) {
        continue;  // hundreds of pixel columns are not listed
      } else if (!options_.text.empty() && decisions_[i].fate != Fate::kText) {
        draft_.columns.push_back({Use::kLeftOut, name, "a text model reads only text"});
      } else if (decisions_[i].fate == Fate::kLeftOut) {
        draft_.columns.push_back({Use::kLeftOut, name, decisions_[i].why});
      } else {
        draft_.columns.push_back({Use::kLearnedFrom, name, says[name]});
      }
    }
  }

  /// Adds a warning about the cells of a column that is learned from, or of the target.
  void add_cell_note(const DataWarning& warning) {
    if (warning.key == kWordsWithoutSpaces) return;  // the draft has subwords
    const auto is_left_out = [&](const std::string& name) {
      return decision_of(name).fate == Fate::kLeftOut;
    };
    if (std::ranges::any_of(warning.columns, is_left_out)) return;
    draft_.notes.push_back(warning.message);
  }

  const ColumnProfile& profile_of(const std::string& name) const {
    return table_.columns[index_.at(name)];
  }

  void add_fields() {
    auto& fields = draft_.fields;
    if (!options_.header) {
      fields.push_back({"header", "false", "the first row is data; columns are c0, c1, ..."});
    }
    if (options_.delimiter != ',') {
      fields.push_back({"delimiter", options_.delimiter == '\t'
                                         ? "\"\\t\""
                                         : "\"" + std::string(1, options_.delimiter) + "\""});
    }
    drop_unused_numbers();
    for (DraftField& field : cell_fields(table_, options_)) fields.push_back(std::move(field));
    fields.push_back({"target", yaml_text(options_.target), draft_.target_says});
    const bool numbers = profile_of(options_.target).counts.texts == 0;
    fields.push_back({"target_kind", options_.target_kind,
                      !numbers                          ? ""
                      : options_.target_kind == "class" ? "numeric predicts it as a number"
                                                        : "class treats each number as a class"});
    if (options_.skips_rows()) {
      fields.push_back({"missing_target", "skip", "leaves out " + count_of(missing_, "row")});
    }
    if (side_ > 0) {
      const std::string side = std::to_string(side_);
      fields.push_back(
          {"image", "[1, " + side + ", " + side + "]", "the columns are the pixels of an image"});
    }
    if (!options_.text.empty()) {
      fields.push_back({"text", yaml_list(options_.text), "the model learns from its words"});
      double words = 0;
      for (const std::string& name : options_.text) words += profile_of(name).words_mean();
      add_token_fields(words, draft_,
                       find_unspaced_words(data_.schema.text, data_.train).has_value());
      return;
    }
    if (side_ > 0) return;
    add_list("date", Fate::kDate,
             "become numbers: the day, and its place in the year and the week");
    add_list("categorical", Fate::kMixed, "numbers that stand for categories, and text");
    add_list("ignore", Fate::kLeftOut, "left out; remove a line to use the column");
  }

  void add_list(const std::string& field, Fate fate, const std::string& says) {
    DraftField list{field, "", says};
    for (size_t i = 0; i < decisions_.size(); ++i) {
      if (i == target_ || decisions_[i].fate != fate) continue;
      list.items.push_back({Use::kLeftOut, table_.columns[i].name, decisions_[i].why});
    }
    if (!list.items.empty()) draft_.fields.push_back(std::move(list));
  }

  std::string table_name() const {
    switch (options_.delimiter) {
      case '\t':
        return "a table separated by tabs, with ";
      case ';':
        return "a table separated by semicolons, with ";
      case '|':
        return "a table separated by |, with ";
      default:
        return "a CSV file with ";
    }
  }

  std::string rows_text(const Head& head) const {
    const int64_t rows = table_.rows + missing_;
    if (head.whole) return count_of(rows, "row");
    return (head.bytes > 0 ? "about " + grouped(estimate_rows(head, rows)) + " rows"
                           : "more than " + grouped(rows) + " rows") +
           " (init read the first " + grouped(rows) + ")";
  }

  CsvOptions options_;
  TableProfile table_;
  std::unordered_map<std::string, size_t> index_;  // index of each column by name
  size_t target_;
  int64_t missing_;                  // number of rows without a target
  std::vector<Decision> decisions_;  // by column
  std::optional<TextWorth> worth_;   // if texts were compared with the other columns
  int64_t side_ = 0;                 // side of the images whose pixels are the columns; 0: none
  TypedDataset data_;
  DatasetStatistics statistics_;
  JobDraft draft_;
};

/// Returns the draft for JSON lines with a single text member: a text for a language model to
/// continue.
JobDraft draft_text_member(const fs::path& path, const ColumnProfile& column,
                           const TableProfile& table) {
  JobDraft draft;
  draft.format = "text";
  draft.sources = {{"path", path}};
  draft.found = "JSON lines with " + count_of(table.rows, "text");
  draft.fields = {{"field", yaml_text(column.name), "the member with the text"},
                  {"tokenizer", "char", "tokens are characters"}};
  draft.target_says = "each next character";
  draft.facts.kind = DataFacts::Kind::kText;
  std::error_code ec;
  draft.facts.rows = static_cast<int64_t>(fs::file_size(path, ec));
  draft.guess = first_guess(draft.facts);
  return draft;
}

std::vector<std::string> other_names(const TableProfile& table, const Target& target) {
  std::vector<std::string> names;
  if (!target.choice) return names;
  for (const size_t column : target.choice->columns) {
    if (column != target.column) names.push_back(table.columns[column].name);
  }
  return names;
}

Error no_target_values(const std::string& target) {
  return make_error(
      ErrorCode::kInvalidArgument, "TARGET_UNKNOWN",
      "--target: column " + quoted_value(target) + " has no value in any row; name another column");
}

Error only_single_rows(const ColumnProfile& target) {
  return make_error(ErrorCode::kInvalidArgument, "TARGET_UNKNOWN",
                    "--target: each of the " + grouped(target.present()) + " rows has another " +
                        quoted_value(target.name) +
                        ", so a model of these classes could be tested on no other row; name "
                        "another column");
}

}  // namespace

Result<JobDraft> draft_table(const fs::path& path, const Sniffed& sniffed,
                             const DraftOptions& options) {
  CsvOptions csv;
  csv.json_lines = sniffed.kind == DataKind::kJsonLines;
  csv.header = sniffed.header;
  csv.delimiter = sniffed.delimiter;
  ASSIGN_OR_RETURN(const Head head,
                   take_head(path, !csv.json_lines, options.head_bytes, options.scratch));
  ASSIGN_OR_RETURN(TableProfile table, profile_columns(csv, head.path));
  if (table.rows == 0) return unsupported(path.string() + " has a header, and no rows below it.");
  if (choose_cell_settings(table, csv)) {
    ASSIGN_OR_RETURN(table, profile_columns(csv, head.path));
  }
  if (table.columns.size() == 1) {
    if (csv.json_lines && table.columns[0].counts.texts > 0 && options.target.empty()) {
      return draft_text_member(path, table.columns[0], table);
    }
    return unsupported(path.string() +
                       " has a single column; a table needs one to predict, and at least one to "
                       "learn from.");
  }
  ASSIGN_OR_RETURN(const Target target, find_target(table, options.target, path.stem().string()));
  csv.target = table.columns[target.column].name;
  const int64_t marked = count_marked_classes(table.columns[target.column]);
  const int64_t missing = table.columns[target.column].counts.missing - marked;
  const std::vector<std::string> others = other_names(table, target);
  if (missing > 0) {
    // The ingest judges the columns by the rows that have a target, so they are judged here by the
    // same rows.
    csv.missing_target = "skip";
    ASSIGN_OR_RETURN(table, profile_columns(csv, head.path, /*target_is_text=*/marked > 0));
    if (table.rows == 0) return no_target_values(csv.target);
  }
  if (has_only_single_rows(table.columns[target.column])) {
    return only_single_rows(table.columns[target.column]);
  }
  TableDraft drafting(csv, std::move(table), target.column, missing);
  if (Status s = drafting.read(head); !s.ok()) return std::move(s).error();
  JobDraft draft = drafting.finish(head);
  draft.sources = {{"path", path}};
  if (target.choice) {
    draft.target_why = target.choice->why;
    draft.target_certainty = text_of(target.choice->certainty);
    draft.target_others = others;
  }
  draft.guess = first_guess(draft.facts);
  return draft;
}

}  // namespace trainyard::init
