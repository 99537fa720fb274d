// src/data/table/json_lines.h: reads lines of text, and JSON objects of one line each, from a
// stream of untrusted bytes in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/result.h"
#include "src/data/files/byte_source.h"
#include "src/data/table/table_reader.h"

namespace trainyard {

/// Reads lines and removes their ends, LF or CRLF, and a UTF-8 byte order mark before the first
/// line.
class LineReader {
 public:
  LineReader(ByteSource& source, std::string what);
  /// Continues with another source after the end of the previous one.
  void continue_with(ByteSource& source);
  /// Reads the next line; returns false at the end. The view is valid until the following call.
  /// Refuses a line of more than kLineBytesMax bytes.
  Result<bool> next(std::string_view& line);
  int64_t line() const { return line_; }

 private:
  ByteSource* source_;
  const std::string what_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool eof_ = false;
  int64_t line_ = 0;
};

struct JsonMember {
  enum class Kind : uint8_t { kNull, kScalar, kText, kNested } kind = Kind::kNull;
  std::string_view
      text;  // kScalar: the number's text, "true" or "false"; kText: the string's value
};

/// Calls visit(name, member) for each member of the object that `line` consists of, in order, until
/// `visit` returns an error. `place` names the line in messages.
Status visit_json_object(
    std::string_view line, const std::string& place,
    const std::function<Status(const std::string& name, const JsonMember& member)>& visit);

/// Reads a row from each line that is not empty. Missing members and null are empty cells.
class JsonLinesTable final : public TableReader {
 public:
  /// `names` are the known columns, whose members may have their names in another case
  /// (column_match.h); members with other names become columns after them.
  JsonLinesTable(ByteSource& source, std::string what, std::vector<std::string> names);
  const std::vector<std::string>& names() const override { return names_; }
  Result<bool> next(std::vector<std::string_view>& fields) override;
  int64_t line() const override { return lines_.line(); }
  int64_t rows_begin() const override { return 0; }
  /// Continues, after the last row, with the rows of another source.
  void continue_with(ByteSource& source) { lines_.continue_with(source); }

 private:
  Result<size_t> column_of(const std::string& name, const std::string& place);

  LineReader lines_;
  const std::string what_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> columns_;  // index of each column by its name
  // Index of each known column by its folded name; kNoColumn if several have the same one.
  std::unordered_map<std::string, size_t> folded_;
  std::vector<std::string> cells_;  // cells of the current row, one per column
  std::vector<int64_t> set_on_;     // by column: the line that last set the cell
};

}  // namespace trainyard
