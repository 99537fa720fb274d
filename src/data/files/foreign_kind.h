// src/data/files/foreign_kind.h: recognizes files that no dataset format can read by their first
// bytes, and advises how to convert them.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

struct ForeignKind {
  std::string_view magic;
  std::string_view what;         // "a Parquet file"
  std::string_view reader = {};  // the call of pandas that reads it; {file} stands for its name
  // Advice if there is no reader. {stem} and {ending} stand for the parts of {file}.
  std::string_view remedy = {};
};

/// Returns the kind of a file with the first bytes `start`; null if it is not known or if `start`
/// is valid text, which may begin with the same bytes by chance.
const ForeignKind* find_foreign_kind(std::string_view start);

/// Returns advice for such a file, as a sentence. `file` is its name.
std::string remedy_of(const ForeignKind& kind, const std::string& file);

/// Returns a command that converts `file` with pandas: "python3 -c \"...\"". In `read` and `write`,
/// {file} stands for its name and {stem} for the name without its ending.
std::string by_pandas(const std::string& file, std::string_view read,
                      std::string_view write = "to_csv('{stem}.csv', index=False)");

}  // namespace trainyard
