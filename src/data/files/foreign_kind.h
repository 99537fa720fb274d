// src/data/files/foreign_kind.h: files that no format of a dataset reads, known by their first
// bytes, and how each becomes one that is read.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

struct ForeignKind {
  std::string_view magic;
  std::string_view what;         // "a Parquet file"
  std::string_view reader = {};  // of pandas, with {file} for its name; empty: `remedy`
  std::string_view remedy = {};  // a sentence; {file} as above, {stem} and {ending} are its parts
};

/// Null if `start`, the first bytes of a file, may be text or data that is read. Text may begin
/// like any kind: only what is no text counts.
const ForeignKind* find_foreign_kind(std::string_view start);

/// What to do with such a file, in a sentence. `file` is what the reader calls it.
std::string remedy_of(const ForeignKind& kind, const std::string& file);

/// A command that makes a file of another kind of `file` by pandas: "python3 -c \"...\"". In
/// `read` and `write`, {file} is its name and {stem} that without its ending.
std::string by_pandas(const std::string& file, std::string_view read,
                      std::string_view write = "to_csv('{stem}.csv', index=False)");

}  // namespace trainyard
