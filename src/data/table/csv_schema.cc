#include "src/data/table/csv_schema.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/column_match.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/table/separators.h"

namespace trainyard {
namespace {

using RoleKind = ColumnRole::Kind;

/// A set, since a file may have hundreds of thousands of columns and its options may list most of
/// them.
using NameSet = std::unordered_set<std::string_view>;

NameSet set_of(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  // Typos in shorter names are not recognized, since nearly every name would be similar.
  const std::optional<std::string> near =
      word.size() < 3 ? std::nullopt : nearest_name(word, names);
  if (near) {
    return "; did you mean " + quoted_value(*near) + "?";
  }
  std::string text = "; the columns are ";
  constexpr size_t kShownMax = 8;
  for (size_t i = 0; i < std::min(names.size(), kShownMax); ++i) {
    text += (i > 0 ? ", " : "") + quoted_value(names[i]);
  }
  if (names.size() > kShownMax) text += ", ... " + quoted_value(names.back());
  return text;
}

/// A column is numeric if at least half of its values are numbers; its texts are then mistakes.
ColumnSchema::Kind infer_column(const NameSet& categorical, const std::string& name,
                                const ColumnCounts& counts) {
  if (categorical.contains(name) || counts.form() == CategoryForm::kBooleans) {
    return ColumnSchema::Kind::kCategorical;
  }
  return counts.numbers + counts.not_finite >= counts.texts ? ColumnSchema::Kind::kNumeric
                                                            : ColumnSchema::Kind::kCategorical;
}

std::string unit_of(const ColumnCounts& counts) {
  return counts.units.empty() ? std::string() : *counts.units.begin();
}

/// Refuses a column in `numbers` whose numbers have different units.
Status check_units(const CsvOptions& options, const CsvScan& scan) {
  for (size_t i = 0; i < scan.names.size(); ++i) {
    const std::set<std::string>& units = scan.counts[i].units;
    if (units.size() < 2) continue;
    return dataset_error(options.field("numbers"),
                         quoted_value(scan.names[i]) + " has numbers in " +
                             quoted_value(*units.begin()) + " and in " +
                             quoted_value(*std::next(units.begin())) +
                             ", expected one unit; write all its numbers in the same unit");
  }
  return {};
}

/// Returns the form of the dates of a column.
Result<DateForm> date_form(const CsvOptions& options, const CsvScan& scan,
                           const std::string& name) {
  const auto counts = scan.dates.find(name);
  if (counts == scan.dates.end()) return DateForm{};
  if (const auto form = counts->second.form(options.date_order)) return *form;
  return dataset_error(options.field("date"),
                       quoted_value(name) +
                           " has dates such as 3/4/2026, whose day may be first or second: no "
                           "number in them is above 12. Set " +
                           options.field("date_order") + ": day_first or month_first");
}

/// Checks how numbers are written.
Status check_number_style(const CsvOptions& options) {
  const std::string& decimal = options.decimal;
  if (!decimal.empty() && decimal != "." && decimal != ",") {
    return dataset_error(options.field("decimal"),
                         quoted_value(decimal) + ", expected \".\" or \",\"");
  }
  static constexpr auto kMarks = std::to_array<std::string_view>(
      {"", ",", ".", "'", "_", " ", "\xe2\x80\x99", "\xc2\xa0", "\xe2\x80\xaf"});
  const std::string& thousands = options.thousands;
  if (std::ranges::find(kMarks, thousands) == kMarks.end()) {
    return dataset_error(
        options.field("thousands"),
        quoted_value(thousands) +
            ", expected a comma, a point, an apostrophe, an underscore or a space");
  }
  if (thousands != std::string(1, options.number_style().decimal)) return {};
  return dataset_error(
      options.field("thousands"),
      quoted_value(thousands) + " is the decimal mark too; set " + options.field("decimal"));
}

/// Checks the columns of numbers with units. The target may be one of them.
Status check_numbers(const CsvOptions& options, const std::vector<std::string>& columns) {
  const std::string field = options.field("numbers");
  if (options.numbers.empty()) return {};
  const NameSet known = set_of(columns);
  const std::pair<const char*, NameSet> lists[] = {{"ignore", set_of(options.ignore)},
                                                   {"categorical", set_of(options.categorical)},
                                                   {"date", set_of(options.date)},
                                                   {"text", set_of(options.text)}};
  for (const std::string& name : options.numbers) {
    if (!known.contains(name)) {
      return dataset_error(field,
                           quoted_value(name) + " is not a column" + did_you_mean(name, columns));
    }
    for (const auto& [option, names] : lists) {
      if (!names.contains(name)) continue;
      return dataset_error(field, quoted_value(name) + " is in " + options.field(option) + " too");
    }
    if (!options.image.empty()) {
      return dataset_error(field, quoted_value(name) + " cannot be a pixel of the image");
    }
    if (!options.text.empty() && name != options.target) {
      return dataset_error(field, quoted_value(name) + " has no effect with " +
                                      options.field("text") +
                                      ": columns that are not listed there are left out");
    }
    if (name == options.target && options.target_kind == "class") {
      return dataset_error(field, quoted_value(name) + " is the target, but " +
                                      options.field("target_kind") + " is class");
    }
  }
  return {};
}

Status check_text(const CsvOptions& options) {
  const auto unused = [&](const char* name) {
    return dataset_error(options.field(name),
                         "has no effect with " + options.field("text") +
                             ": columns that are not listed there are left out");
  };
  if (!options.image.empty()) return unused("image");
  if (!options.categorical.empty()) return unused("categorical");
  if (!options.ignore.empty()) return unused("ignore");
  if (!options.date.empty()) return unused("date");
  return check_row_text(options.json_lines ? "jsonl" : "csv", options.tokenizer,
                        options.vocabulary_size, options.max_length);
}

}  // namespace

Status check_row_text(const std::string& format, const std::string& tokenizer,
                      int64_t vocabulary_size, int64_t max_length) {
  if (!find_tokenizer(tokenizer)) {
    return dataset_error(format + ".tokenizer",
                         quoted_value(tokenizer) + ", expected word, char, byte, bpe or unigram");
  }
  const auto in_range = [&](const char* name, int64_t value, int64_t max) -> Status {
    if (value >= 1 && value <= max) return {};
    return dataset_error(format + name, std::to_string(value) + " is out of range, expected 1.." +
                                            std::to_string(max));
  };
  if (Status s = in_range(".vocabulary_size", vocabulary_size, kVocabularyMax); !s.ok()) return s;
  return in_range(".max_length", max_length, kTextLengthMax);
}

TargetSchema::Kind infer_target(const std::string& wish, const ColumnCounts& counts,
                                size_t different_values) {
  using enum TargetSchema::Kind;
  if (wish == "class") return kClass;
  if (wish == "numeric") return kNumeric;
  const bool few = different_values <= kTargetValuesMax;
  if (counts.texts == 0) return counts.not_finite == 0 && counts.whole && few ? kClass : kNumeric;
  // Many different values of which most are numbers are a numeric target with some mistakes, which
  // the second pass reports.
  return few || counts.numbers < counts.texts ? kClass : kNumeric;
}

namespace {

/// Returns the error for a target that is no column. It contains a hint if the header suggests a
/// cause.
Error no_such_target(const CsvOptions& options, const std::vector<std::string>& columns) {
  const Separator* separator =
      options.json_lines || columns.size() != 1 ? nullptr : find_separator(columns[0]);
  if (separator != nullptr) {
    return dataset_error(options.field("delimiter"),
                         "the header is separated by " + std::string(separator->plural) +
                             ", expected delimiter: " + std::string(separator->yaml));
  }
  const CellReader cells;
  const bool any_number = std::ranges::any_of(
      columns, [&](const std::string& name) { return cells.read(name).is_number(); });
  return dataset_error(
      options.field("target"),
      quoted_value(options.target) + " is not a column" + did_you_mean(options.target, columns) +
          (any_number && options.header && !options.json_lines
               ? "; if the file has no header, set header: false and name its columns c0, c1 and "
                 "so on"
               : ""));
}

/// Checks a column that the dataset keeps for splits; an empty name means none.
Status check_split_column(const CsvOptions& options, const std::string& option,
                          const std::string& name, const std::vector<std::string>& columns) {
  if (name.empty()) return {};
  const bool exists = std::ranges::find(columns, name) != columns.end();
  if (exists && name != options.target) return {};
  return dataset_error(
      options.field(option.c_str()),
      quoted_value(name) + ", by which rows are split (recipe.split." + option +
          " in a job file), " +
          (exists ? "is the target" : "is not a column" + did_you_mean(name, columns)));
}

}  // namespace

Status check_options(const CsvOptions& options, const std::vector<std::string>& columns) {
  if (options.target.empty())
    return dataset_error(options.field("target"), "required: the column to predict");
  const NameSet known = set_of(columns), ignored = set_of(options.ignore),
                categorical = set_of(options.categorical);
  if (!known.contains(options.target)) return no_such_target(options, columns);
  const auto check_list = [&](const char* option, const std::vector<std::string>& names) -> Status {
    const std::string field = options.field(option);
    for (const std::string& name : names) {
      if (!known.contains(name)) {
        return dataset_error(field,
                             quoted_value(name) + " is not a column" + did_you_mean(name, columns));
      }
      if (name == options.target) {
        return dataset_error(field, quoted_value(name) + " is the target");
      }
    }
    return {};
  };
  if (Status s = check_list("ignore", options.ignore); !s.ok()) return s;
  if (Status s = check_list("categorical", options.categorical); !s.ok()) return s;
  for (const std::string& name : options.categorical) {
    if (ignored.contains(name)) {
      return dataset_error(options.field("categorical"),
                           quoted_value(name) + " is in " + options.field("ignore") + " too");
    }
    if (!options.image.empty()) {
      return dataset_error(options.field("categorical"),
                           "an image has no categories, expected an empty list");
    }
  }
  if (Status s = check_list("date", options.date); !s.ok()) return s;
  for (const std::string& name : options.date) {
    const auto refuse = [&](const std::string& why) {
      return dataset_error(options.field("date"), quoted_value(name) + why);
    };
    if (ignored.contains(name)) return refuse(" is in " + options.field("ignore") + " too");
    if (categorical.contains(name)) {
      return refuse(" is in " + options.field("categorical") + " too");
    }
    if (!options.image.empty()) return refuse(" cannot be a pixel of the image");
    for (const std::string& part : date_column_names(name, {DateOrder::kYearFirst, true})) {
      if (known.contains(part)) {
        return refuse(" makes a column " + quoted_value(part) + ", which already exists");
      }
    }
  }
  const std::string& order = options.date_order;
  if (!order.empty() && order != "day_first" && order != "month_first") {
    return dataset_error(options.field("date_order"),
                         quoted_value(order) + ", expected day_first or month_first");
  }
  if (Status s = check_number_style(options); !s.ok()) return s;
  if (Status s = check_numbers(options, columns); !s.ok()) return s;
  if (Status s = check_list("text", options.text); !s.ok()) return s;
  for (const auto& [option, name] : {std::pair("group", options.group), {"time", options.time}}) {
    if (Status s = check_split_column(options, option, name, columns); !s.ok()) return s;
  }
  if (!options.text.empty()) {
    if (Status s = check_text(options); !s.ok()) return s;
  }
  const std::string& kind = options.target_kind;
  if (!kind.empty() && kind != "class" && kind != "numeric") {
    return dataset_error(options.field("target_kind"),
                         quoted_value(kind) + ", expected class or numeric");
  }
  if (!options.image.empty()) {
    const Shape image(options.image);
    if (image.rank() != 3 || !image.fits() || image.elements() < 1 ||
        image.elements() > kImageValuesMax) {
      return dataset_error("csv.image", image.to_string() + ", expected [C, H, W]");
    }
  }
  return {};
}

bool is_nameless_and_empty(const CsvScan& scan, size_t column) {
  return is_generated_name(scan.names[column]) && scan.counts[column].missing == scan.rows;
}

Result<DatasetSchema> build_schema(const CsvOptions& options, const CsvScan& scan) {
  DatasetSchema schema;
  const bool text = !options.text.empty();
  schema.kind = text                    ? DatasetSchema::Kind::kText
                : options.image.empty() ? DatasetSchema::Kind::kTabular
                                        : DatasetSchema::Kind::kImage;
  if (text) {
    schema.text.tokenizer = *find_tokenizer(options.tokenizer);
    schema.text.max_length = options.max_length;
  }
  schema.train_rows = scan.rows;
  schema.source_columns = scan.names;
  schema.delimiter = options.delimiter;
  schema.missing_values = options.missing;
  schema.number_style = options.number_style();
  schema.target.name = options.target;
  const NameSet ignored = set_of(options.ignore), texts = set_of(options.text),
                dates = set_of(options.date), categorical = set_of(options.categorical),
                numbers = set_of(options.numbers);
  if (Status s = check_units(options, scan); !s.ok()) return std::move(s).error();
  int64_t features = 0;
  for (size_t i = 0; i < scan.names.size(); ++i) {
    const std::string& name = scan.names[i];
    if (name == options.target) {
      schema.target.kind =
          numbers.contains(name)
              ? TargetSchema::Kind::kNumeric
              : infer_target(options.target_kind, scan.counts[i], scan.target_values.size());
      if (schema.target.kind == TargetSchema::Kind::kNumeric) {
        schema.target.offset = scan.counts[i].offset();
        if (numbers.contains(name)) schema.target.unit = unit_of(scan.counts[i]);
      }
    } else if (ignored.contains(name) || (text && !texts.contains(name)) ||
               is_nameless_and_empty(scan, i)) {
      schema.ignored_columns.push_back(name);
    } else {
      ++features;
      if (schema.kind == DatasetSchema::Kind::kImage) continue;
      if (text) {
        schema.columns.push_back({ColumnSchema::Kind::kText, name, {}, 0});
        continue;
      }
      if (dates.contains(name)) {
        ASSIGN_OR_RETURN(const DateForm form, date_form(options, scan, name));
        const size_t first = schema.columns.size();
        for (const std::string& part : date_column_names(name, form)) {
          schema.columns.push_back({ColumnSchema::Kind::kNumeric, part, {}, 0, name, form.order});
        }
        schema.columns[first].offset = scan.dates.at(name).offset(form.order);
        continue;
      }
      schema.columns.push_back({numbers.contains(name)
                                    ? ColumnSchema::Kind::kNumeric
                                    : infer_column(categorical, name, scan.counts[i]),
                                name,
                                {},
                                0});
      if (schema.columns.back().kind == ColumnSchema::Kind::kNumeric) {
        schema.columns.back().offset = scan.counts[i].offset();
        if (numbers.contains(name)) schema.columns.back().unit = unit_of(scan.counts[i]);
      }
    }
  }
  if (features == 0) {
    return dataset_error("data", "there is no column besides the target, expected at least one");
  }
  if (schema.kind == DatasetSchema::Kind::kImage) {
    schema.image = Shape(options.image);
    if (schema.image.elements() != features) {
      return dataset_error("csv.image", schema.image.to_string() + " has " +
                                            std::to_string(schema.image.elements()) +
                                            " values, but there are " + std::to_string(features) +
                                            " feature columns");
    }
  }
  return schema;
}

Result<RowFiller::Layout> build_layout(const DatasetSchema& schema,
                                       const std::vector<std::string>& names,
                                       const std::string& what, TargetUse target_use) {
  std::unordered_map<std::string_view, ColumnRole> roles;
  RowFiller::Layout layout;
  layout.pixel_dtype = schema.image_dtype;
  const bool image = schema.kind == DatasetSchema::Kind::kImage;
  for (const std::string& name : schema.ignored_columns) roles[name] = {RoleKind::kIgnored, 0};
  const bool target_needed = target_use == TargetUse::kNeeded;
  const RoleKind target_role = schema.target.kind == TargetSchema::Kind::kClass
                                   ? RoleKind::kTargetClass
                                   : RoleKind::kTargetNumeric;
  roles[schema.target.name] = {target_needed ? target_role : RoleKind::kIgnored, 0, 0,
                               schema.target.offset, schema.target.unit};
  if (image) {
    for (const std::string& name : schema.source_columns) {
      if (!roles.contains(name)) roles[name] = {RoleKind::kPixel, layout.pixels++};
    }
  }
  for (const ColumnSchema& c : schema.columns) {
    switch (c.kind) {
      case ColumnSchema::Kind::kNumeric:
        if (c.date.empty()) {
          roles[c.name] = {RoleKind::kNumeric, layout.numeric++, 0, c.offset, c.unit};
        } else {
          ColumnRole& role =
              roles
                  .try_emplace(
                      c.date,
                      ColumnRole{RoleKind::kDate, layout.numeric, 0, c.offset, {}, c.date_order})
                  .first->second;
          ++role.parts;
          ++layout.numeric;
        }
        break;
      case ColumnSchema::Kind::kCategorical:
        roles[c.name] = {RoleKind::kCategorical, layout.categorical++};
        break;
      case ColumnSchema::Kind::kText:
        roles[c.name] = {RoleKind::kText, 0};
        break;
    }
  }
  if (schema.kind == DatasetSchema::Kind::kText) {
    layout.tokenizer = make_tokenizer(schema.text);
    layout.text_length = schema.text.max_length;
    layout.padding = static_cast<int32_t>(schema.text.padding_id());
  }
  const std::vector<size_t> matches = match_columns(names, schema.source_columns);
  std::vector<bool> found(schema.source_columns.size(), false);
  for (size_t i = 0; i < names.size(); ++i) {
    layout.names.push_back(names[i]);
    if (matches[i] == kNoColumn) {
      layout.roles.push_back({RoleKind::kIgnored, 0});
      layout.unknown.push_back(names[i]);
      continue;
    }
    found[matches[i]] = true;
    layout.roles.push_back(roles[schema.source_columns[matches[i]]]);
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string& name = schema.source_columns[i];
    if (!found[i] && roles[name].kind != RoleKind::kIgnored) missing.push_back(name);
  }
  if (missing.empty()) return layout;
  return missing_columns(
      what, missing, target_needed ? "which the training data has" : "which the model learned from",
      layout.unknown);
}

}  // namespace trainyard
