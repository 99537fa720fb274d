// src/data/table/csv_reader.h: reads CSV records from a stream of untrusted bytes, in bounded
// memory.
//
// The format is RFC 4180 with common extensions: LF, CRLF or, throughout a file, CR alone; a UTF-8
// byte order mark; Excel's first line "sep=;"; blanks around a field (dropped unless quoted); a
// last line without line break; empty lines (skipped). A quoted field may contain delimiters, line
// breaks and doubled quotes. A quote after the first character of an unquoted field belongs to its
// text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/files/byte_source.h"

namespace trainyard {

struct ForeignKind;

/// A first line by which Excel names the delimiter of a CSV file: "sep=;".
struct SeparatorLine {
  char delimiter = ',';
  size_t bytes = 0;  // the length of the line with its end
};
/// Returns the first line of `text` if it is such a line. `text` begins after a byte order mark.
std::optional<SeparatorLine> find_separator_line(std::string_view text);

/// The number of bytes after a text that a reader may read and set to zero.
inline constexpr size_t kCsvPadding = 64;

class CsvReader {
 public:
  /// Borrows `source`. `delimiter` is neither a quote nor a line break.
  CsvReader(ByteSource& source, char delimiter, std::string what);
  /// Reads the first `size` bytes of `text`, which must have kCsvPadding more and is not copied.
  /// The text must begin with a record and without a byte order mark. It is a part of a file that
  /// was cut by its quotes, so a quote within an unquoted field is refused.
  CsvReader(std::vector<char> text, size_t size, char delimiter, std::string what);

  /// Refuses a source that is a page in HTML or XML in place of a table. Call it before next().
  Status refuse_page();
  /// Reads the next record; returns false at the end. The views are valid until the following call.
  /// Refusal: DATASET_INVALID with the line, after which nothing can be read.
  Result<bool> next(std::vector<std::string_view>& fields);
  /// Returns the line, from 1, on which the last record began.
  int64_t line() const { return record_line_; }
  /// Returns the offsets in the source at which the last record began and ended.
  int64_t record_begin() const { return record_begin_; }
  int64_t record_end() const { return dropped_ + static_cast<int64_t>(begin_); }
  /// Returns whether CR alone ends the source's lines. Known after the first record.
  bool ends_by_cr() const { return ends_by_cr_; }
  /// Returns the buffer, so that it can be reused for the next text.
  std::vector<char> take_buffer() && { return std::move(buffer_); }

 private:
  enum class Outcome : uint8_t { kRecord, kNeedMore, kEnd };
  struct Span {
    size_t begin;
    size_t end;
    bool doubled_quotes;
  };

  void prepare();
  bool next_plain(std::vector<std::string_view>& fields);
  std::string_view plain_field(size_t begin, size_t end, bool last) const;
  void mark_from(size_t position);
  Result<Outcome> scan();
  Result<size_t> scan_quoted(size_t open);
  Status fill();
  Status start();
  Status skip_separator_line();
  void replace_cr(size_t begin);
  Error refuse_kind(const ForeignKind& kind, const char* expected) const;
  Error refuse_field(size_t position, const Span& span) const;
  void finish(std::vector<std::string_view>& fields);
  Error too_long() const;
  std::string line_place(int64_t line) const;

  ByteSource* const source_;  // null if the whole text is in the buffer
  const char delimiter_;
  const std::string what_;
  std::array<bool, 256> ends_plain_{};  // bytes that end an unquoted field or are invalid in it
  std::vector<char> buffer_;  // the text and kCsvPadding zeros after it, which end every scan
  size_t begin_ = 0;          // begin of the record in buffer_
  size_t end_ = 0;            // end of the text in buffer_
  size_t after_ = 0;          // end of the record; set by scan()
  size_t marked_ = 0;         // marks_ is for the 64 bytes from here on
  uint64_t marks_ = 0;        // bit i: byte marked_ + i ends a plain field and is not yet processed
  bool eof_ = false;
  bool started_ = false;
  bool ends_by_cr_ = false;
  std::vector<Span> spans_;
  bool quoted_any_ = false;
  int64_t line_ = 1;        // the line at begin_
  int64_t line_after_ = 1;  // the line at after_
  int64_t record_line_ = 0;
  int64_t record_begin_ = 0;
  int64_t dropped_ = 0;  // the number of source bytes that are no longer in the buffer
};

}  // namespace trainyard
