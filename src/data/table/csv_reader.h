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

class CsvReader {
 public:
  /// Borrows `source`. `delimiter` is neither a quote nor a line break.
  CsvReader(ByteSource& source, char delimiter, std::string what);

  /// Reads the next record; false at the end. The views are valid until the following call.
  /// Refusal: DATASET_INVALID naming the line; nothing can be read after it.
  Result<bool> next(std::vector<std::string_view>& fields);
  /// The line, from 1, on which the last record began.
  int64_t line() const { return record_line_; }

 private:
  enum class Outcome : uint8_t { kRecord, kNeedMore, kEnd };
  struct Span {
    size_t begin;
    size_t end;
    bool doubled_quotes;
  };

  Result<Outcome> scan();
  Result<size_t> scan_quoted(size_t open);
  Status fill();
  Status start();
  void finish(std::vector<std::string_view>& fields);
  std::string line_place(int64_t line) const;

  ByteSource& source_;
  const char delimiter_;
  const std::string what_;
  std::array<bool, 256> ends_plain_{};  // bytes that an unquoted field cannot simply pass over
  std::vector<char> buffer_;            // one byte more than capacity: a zero ends every scan
  size_t begin_ = 0;                    // of the record
  size_t end_ = 0;                      // of the bytes read
  size_t after_ = 0;                    // of the record, set by scan()
  bool eof_ = false;
  bool started_ = false;
  std::vector<Span> spans_;
  bool quoted_any_ = false;
  int64_t line_ = 1;        // at begin_
  int64_t line_after_ = 1;  // at after_
  int64_t record_line_ = 0;
};

}  // namespace trainyard
