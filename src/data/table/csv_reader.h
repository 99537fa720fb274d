// src/data/table/csv_reader.h: CSV records from a stream of untrusted bytes, in bounded memory.
//
// RFC 4180, with what real files do: LF or CRLF, a UTF-8 byte order mark, blanks around a field
// (dropped unless quoted), a last line without its end, empty lines (skipped). A quoted field may
// hold delimiters, line breaks and doubled quotes; a quote elsewhere is refused.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/files/byte_source.h"

namespace trainyard {

/// Bytes behind a text that a reader may look at and set to zero.
inline constexpr size_t kCsvPadding = 64;

class CsvReader {
 public:
  /// Borrows `source`. `delimiter` is neither a quote nor a line break.
  CsvReader(ByteSource& source, char delimiter, std::string what);
  /// Of the first `size` bytes of `text`, which has kCsvPadding more and is not copied. They begin
  /// where a record does, and a byte order mark is no part of them.
  CsvReader(std::vector<char> text, size_t size, char delimiter, std::string what);

  /// Reads the next record; false at the end. The views are valid until the following call.
  /// Refusal: DATASET_INVALID naming the line; nothing can be read after it.
  Result<bool> next(std::vector<std::string_view>& fields);
  /// The line, from 1, on which the last record began.
  int64_t line() const { return record_line_; }
  /// Where the last record began in the bytes of the source, and where it ended.
  int64_t record_begin() const { return record_begin_; }
  int64_t record_end() const { return dropped_ + static_cast<int64_t>(begin_); }
  /// The memory, for the next text.
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
  void finish(std::vector<std::string_view>& fields);
  Error too_long() const;
  std::string line_place(int64_t line) const;

  ByteSource* const source_;  // null once all is in the buffer
  const char delimiter_;
  const std::string what_;
  std::array<bool, 256> ends_plain_{};  // bytes that an unquoted field cannot simply pass over
  std::vector<char> buffer_;  // with kCsvPadding zeros behind the text: they end every scan
  size_t begin_ = 0;          // of the record
  size_t end_ = 0;            // of the bytes read
  size_t after_ = 0;          // of the record, set by scan()
  size_t marked_ = 0;         // 64 bytes from here have been looked through:
  uint64_t marks_ = 0;        // those of them that end a plain field and are still to come
  bool eof_ = false;
  bool started_ = false;
  std::vector<Span> spans_;
  bool quoted_any_ = false;
  int64_t line_ = 1;        // at begin_
  int64_t line_after_ = 1;  // at after_
  int64_t record_line_ = 0;
  int64_t record_begin_ = 0;
  int64_t dropped_ = 0;  // bytes of the source before those in the buffer
};

}  // namespace trainyard
