// src/data/files/foreign_kind.h: recognizes files that no dataset format can read by their first
// bytes, and advises how to convert them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trainyard {

struct ForeignKind {
  std::string_view magic;
  std::string_view what;  // "a Parquet file"
  // The call of pandas by which trainyard.upload() of the Python client reads the file, too; {file}
  // stands for its name.
  std::string_view reader = {};
  // Advice if there is no reader. {stem} stands for converted_stem(), {ending} for the file's
  // ending.
  std::string_view remedy = {};
};

/// Returns the kind of a file with the first bytes `start`; null if it is not known or if `start`
/// is valid text, which may begin with the same bytes by chance.
const ForeignKind* find_foreign_kind(std::string_view start);

/// Returns the kind of a page in HTML or XML; null if `text` does not begin with a tag of these
/// languages. `named_html` says that the file's name is that of a page, which a tag need not prove.
const ForeignKind* find_markup(std::string_view text, bool named_html = false);

/// Returns find_markup() of a whole document, which begins with its declaration or with <html>;
/// null for other texts, since a tag may as well begin the first value of a table.
const ForeignKind* find_document(std::string_view text);

/// Returns the kind of a text that holds a table in the language of another program, by its file's
/// name: Weka's ARFF, or an SQL script; null for other texts.
const ForeignKind* find_table_script(std::string_view text, std::string_view file);

/// The kinds of spreadsheets, which are ZIP archives.
const ForeignKind& excel_kind();
const ForeignKind& spreadsheet_kind();

/// Returns advice for such a file, as a sentence. `file` is its name.
std::string remedy_of(const ForeignKind& kind, const std::string& file);

/// Returns the name, without its ending, for a file with this ending that a command converts `file`
/// to: "data" for data.xlsx, but "data-converted" for data.csv, which it would overwrite otherwise.
std::string converted_stem(const std::filesystem::path& file, std::string_view ending);

/// Returns a command that converts `file` with pandas: "python3 -c \"...\"". In `read` and `write`,
/// {file} stands for its name and {stem} for converted_stem().
std::string by_pandas(const std::string& file, std::string_view read,
                      std::string_view write = "to_csv('{stem}.csv', index=False)");

}  // namespace trainyard
