#include "src/data/table/csv_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "src/base/text.h"
#include "src/data/files/foreign_kind.h"
#include "src/data/files/text_files.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kNeedMore = SIZE_MAX;

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// Bit i of the result is set if byte i of the 64 at `p` ends an unquoted field or is invalid in
/// it.
uint64_t mark_ends_portable(const char* p, char delimiter) {
  std::array<uint8_t, 64> ends;  // an array, so that the compiler vectorizes the first loop
  for (size_t i = 0; i < 64; ++i) {
    ends[i] =
        static_cast<uint8_t>((p[i] == delimiter) | (p[i] == '\n') | (p[i] == '"') | (p[i] == 0));
  }
  uint64_t marks = 0;
  for (size_t word = 0; word < 8; ++word) {
    uint64_t bytes;
    std::memcpy(&bytes, ends.data() + 8 * word, 8);
    // The highest byte of the product consists of the lowest bits of the eight bytes.
    marks |= ((bytes * 0x0102040810204080u) >> 56) << (8 * word);
  }
  return marks;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t mark_ends_avx2(const char* p, char delimiter) {
  uint64_t marks = 0;
  for (int half = 0; half < 2; ++half) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * half));
    const __m256i ends =
        _mm256_or_si256(_mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_set1_epi8(delimiter)),
                                        _mm256_cmpeq_epi8(x, _mm256_set1_epi8('\n'))),
                        _mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('"')),
                                        _mm256_cmpeq_epi8(x, _mm256_setzero_si256())));
    marks |= uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(ends))} << (32 * half);
  }
  return marks;
}
#endif

uint64_t mark_ends(const char* p, char delimiter) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return mark_ends_avx2(p, delimiter);
#endif
  return mark_ends_portable(p, delimiter);
}

/// Returns whether the text's first line, which may have quoted line breaks, ends with CR alone.
bool is_ended_by_cr(std::string_view text) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted || (text[i] != '\r' && text[i] != '\n')) continue;
    const size_t next = text.find_first_not_of('\r', i);
    return next == text.npos ? text[i] == '\r' : text[next] != '\n' && next > i;
  }
  return false;
}

}  // namespace

std::optional<SeparatorLine> find_separator_line(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  std::string_view line = text.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.size() > 2 && line.front() == '"' && line.back() == '"') {
    line = line.substr(1, line.size() - 2);
  }
  if (line.size() != 5 || lower(line.substr(0, 4)) != "sep=") return std::nullopt;
  return SeparatorLine{line[4], end + 1};
}

CsvReader::CsvReader(ByteSource& source, char delimiter, std::string what)
    : source_(&source),
      delimiter_(delimiter),
      what_(std::move(what)),
      buffer_(kBufferBytes + kCsvPadding) {
  prepare();
}

CsvReader::CsvReader(std::vector<char> text, size_t size, char delimiter, std::string what)
    : source_(nullptr),
      delimiter_(delimiter),
      what_(std::move(what)),
      buffer_(std::move(text)),
      end_(size),
      eof_(true),
      started_(true) {
  TRAINYARD_CHECK(buffer_.size() >= size + kCsvPadding, "a text without its padding");
  std::memset(buffer_.data() + end_, 0, kCsvPadding);
  prepare();
  mark_from(0);
}

void CsvReader::prepare() {
  TRAINYARD_CHECK(
      delimiter_ != '"' && delimiter_ != '\n' && delimiter_ != '\r' && delimiter_ != '\0',
      "a delimiter that CSV cannot have");
  for (const char c : {delimiter_, '\n', '"', '\0'})
    ends_plain_[static_cast<unsigned char>(c)] = true;
}

std::string CsvReader::line_place(int64_t line) const {
  return what_ + ": line " + std::to_string(line);
}

Error CsvReader::refuse_kind(const ForeignKind& kind, const char* expected) const {
  return dataset_error(what_, "this is " + std::string(kind.what) + ", expected " + expected +
                                  ". " + remedy_of(kind, "FILE"));
}

Status CsvReader::refuse_page() {
  if (Status s = start(); !s.ok()) return s;
  const ForeignKind* const kind = find_document({buffer_.data() + begin_, end_ - begin_});
  return kind == nullptr ? Status() : Status(refuse_kind(*kind, "a table"));
}

Status CsvReader::start() {
  started_ = true;
  if (Status s = fill(); !s.ok()) return s;
  const std::string_view text(buffer_.data(), end_);
  if (const ForeignKind* kind = find_foreign_kind(text)) return refuse_kind(*kind, "text in UTF-8");
  if (text.starts_with(kByteOrderMark)) {
    begin_ = kByteOrderMark.size();
  }
  const std::string_view content = text.substr(begin_);
  if (is_ended_by_cr(content)) {
    ends_by_cr_ = true;
    replace_cr(begin_);
  }
  if (Status s = skip_separator_line(); !s.ok()) return s;
  mark_from(begin_);
  return {};
}

/// Replaces each CR in the buffer from `begin` on by LF.
void CsvReader::replace_cr(size_t begin) {
  std::replace(buffer_.begin() + static_cast<ptrdiff_t>(begin),
               buffer_.begin() + static_cast<ptrdiff_t>(end_), '\r', '\n');
}

Status CsvReader::skip_separator_line() {
  const auto line = find_separator_line({buffer_.data() + begin_, end_ - begin_});
  if (!line) return {};
  if (line->delimiter != delimiter_) {
    const std::string given = line->delimiter == '\t' ? "\\t" : std::string(1, line->delimiter);
    return dataset_error(line_place(line_), "the line says that the fields are separated by " +
                                                quoted_value({&line->delimiter, 1}) +
                                                ", expected delimiter: \"" + given + "\"");
  }
  begin_ += line->bytes;
  ++line_;
  return {};
}

/// Moves the partial record to the begin of the buffer and reads more bytes after it.
Status CsvReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    dropped_ += static_cast<int64_t>(begin_);
    begin_ = 0;
  }
  const size_t capacity = buffer_.size() - kCsvPadding;
  if (end_ == capacity) {
    if (capacity >= kLineBytesMax) return too_long();
    buffer_.resize(2 * capacity + kCsvPadding);
  }
  const std::span<char> space(buffer_.data() + end_, buffer_.size() - kCsvPadding - end_);
  ASSIGN_OR_RETURN(const size_t n, read_full(*source_, space));
  const size_t read_from = end_;
  end_ += n;
  if (ends_by_cr_) replace_cr(read_from);
  eof_ = n < space.size();
  std::memset(buffer_.data() + end_, 0, kCsvPadding);
  mark_from(begin_);
  return {};
}

Error CsvReader::too_long() const {
  return dataset_error(line_place(line_), "longer than " + human_bytes(int64_t{kLineBytesMax}) +
                                              ", or a quote opened here is not closed");
}

void CsvReader::mark_from(size_t position) {
  marked_ = position;
  marks_ = position < end_ ? mark_ends(buffer_.data() + position, delimiter_) : 0;
}

Result<bool> CsvReader::next(std::vector<std::string_view>& fields) {
  if (!started_) {
    if (Status s = start(); !s.ok()) return std::move(s).error();
  }
  for (;;) {
    if (next_plain(fields)) return true;
    ASSIGN_OR_RETURN(const Outcome outcome, scan());
    if (outcome == Outcome::kEnd) return false;
    if (outcome == Outcome::kNeedMore) {
      if (Status s = fill(); !s.ok()) return std::move(s).error();
      continue;
    }
    // fill() checks the length of records from a source; this checks those of a whole text.
    if (after_ - begin_ + (buffer_[after_ - 1] == '\n' ? 0 : 1) > kLineBytesMax) return too_long();
    record_line_ = line_;
    record_begin_ = record_end();
    const bool empty_line = spans_.size() == 1 && !quoted_any_ && spans_[0].begin == spans_[0].end;
    if (!empty_line) finish(fields);
    begin_ = after_;
    line_ = line_after_;
    mark_from(begin_);
    if (!empty_line) return true;
  }
}

/// Reads the next record, after skipping empty lines, if it is complete in the buffer, has no
/// quotes and is valid. Otherwise returns false, and scan() reads the record from begin_ on.
bool CsvReader::next_plain(std::vector<std::string_view>& fields) {
  const char* const b = buffer_.data();
  size_t count = 0;
  size_t begin = begin_;
  for (;;) {
    while (marks_ == 0) {
      if (marked_ + 64 >= end_) return false;
      marked_ += 64;
      marks_ = mark_ends(b + marked_, delimiter_);
    }
    const size_t end = marked_ + static_cast<size_t>(std::countr_zero(marks_));
    marks_ &= marks_ - 1;
    const bool last = b[end] == '\n';
    if ((!last && b[end] != delimiter_) || count == size_t{kColumnsMax}) return false;
    const std::string_view field = plain_field(begin, end, last);
    begin = end + 1;
    if (last && count == 0 && field.empty()) {  // an empty line
      begin_ = begin;
      ++line_;
      continue;
    }
    if (count == fields.size()) fields.emplace_back();
    fields[count++] = field;
    if (!last) continue;
    if (begin - begin_ > kLineBytesMax) return false;
    fields.resize(count);
    record_begin_ = record_end();
    begin_ = begin;
    record_line_ = line_++;
    return true;
  }
}

/// Returns the field without the blanks around it and without the CR of a CRLF, which some programs
/// write twice.
std::string_view CsvReader::plain_field(size_t begin, size_t end, bool last) const {
  const char* const b = buffer_.data();
  while (begin < end && is_blank(b[begin])) ++begin;
  while (last && end > begin && b[end - 1] == '\r') --end;
  while (end > begin && is_blank(b[end - 1])) --end;
  return {b + begin, end - begin};
}

/// Finds the fields of the record at begin_. It does not change the reader's position, so that it
/// can be called again once there are more bytes.
Result<CsvReader::Outcome> CsvReader::scan() {
  if (begin_ == end_) return eof_ ? Outcome::kEnd : Outcome::kNeedMore;
  spans_.clear();
  quoted_any_ = false;
  line_after_ = line_;
  const char* const b = buffer_.data();
  size_t p = begin_;
  for (;;) {
    if (std::ssize(spans_) == kColumnsMax) {
      return dataset_error(line_place(line_),
                           "more than " + std::to_string(kColumnsMax) + " fields");
    }
    size_t begin = p;
    while (begin < end_ && is_blank(b[begin]) && b[begin] != delimiter_) ++begin;
    Span span{begin, begin, false};
    if (begin < end_ && b[begin] == '"') {
      quoted_any_ = true;
      ASSIGN_OR_RETURN(const size_t close, scan_quoted(begin));
      if (close == kNeedMore) return Outcome::kNeedMore;
      span = {begin + 1, close, std::memchr(b + begin + 1, '"', close - begin - 1) != nullptr};
      p = close + 1;
      while (p < end_ && ((is_blank(b[p]) && b[p] != delimiter_) || b[p] == '\r')) ++p;
    } else {
      // A quote that does not begin the field is a part of it, but only if the whole source is read
      // in order: a text may have been cut at a place that such a quote made look like a record's
      // end.
      while (!ends_plain_[static_cast<unsigned char>(b[p])] ||
             (b[p] == '"' && source_ != nullptr)) {
        ++p;
      }
      span.end = std::max(p, begin);
    }
    if (p == end_ && !eof_) return Outcome::kNeedMore;
    const bool at_end = p == end_;
    if (!at_end && b[p] != delimiter_ && b[p] != '\n') return refuse_field(p, span);
    if (!(span.begin > begin)) {  // the field is not quoted
      span.end = span.begin + plain_field(span.begin, span.end, at_end || b[p] == '\n').size();
    }
    spans_.push_back(span);
    if (at_end || b[p] == '\n') {
      after_ = at_end ? p : p + 1;
      if (!at_end) ++line_after_;
      return Outcome::kRecord;
    }
    ++p;
  }
}

/// Returns the error for the byte at `position`, which cannot follow the field `span`.
Error CsvReader::refuse_field(size_t position, const Span& span) const {
  const std::string place = line_place(line_after_);
  const std::string field = "field " + std::to_string(spans_.size() + 1);
  const char next = buffer_[position];
  if (next == '\0')
    return dataset_error(place, field + " contains a zero byte, expected UTF-8 text");
  if (next == '"') {
    return dataset_error(place, field +
                                    " contains a quote, expected the whole field in quotes and "
                                    "inner quotes doubled");
  }
  if (span.begin == span.end) {
    return dataset_error(place,
                         field +
                             " begins with two quotes; if each quote of the file is doubled, "
                             "undo this: sed 's/\"\"/\"/g' FILE > undoubled.csv");
  }
  if (buffer_[span.end - 1] == '\\') {
    return dataset_error(place,
                         field +
                             " has a backslash before a quote; inner quotes are doubled, not "
                             "escaped: sed 's/\\\\\"/\"\"/g' FILE > doubled.csv");
  }
  return dataset_error(place, field + " continues after its closing quote");
}

/// Returns the position of the closing quote of the field whose opening quote is at `open`, or
/// kNeedMore.
Result<size_t> CsvReader::scan_quoted(size_t open) {
  const char* const b = buffer_.data();
  const int64_t open_line = line_after_;
  size_t p = open + 1;
  for (;;) {
    const void* found = std::memchr(b + p, '"', end_ - p);
    const size_t quote =
        found == nullptr ? end_ : static_cast<size_t>(static_cast<const char*>(found) - b);
    if (std::memchr(b + p, '\0', quote - p) != nullptr) {
      return dataset_error(line_place(open_line),
                           "a quoted field contains a zero byte, expected UTF-8 text");
    }
    line_after_ += std::count(b + p, b + quote, '\n');
    if (quote == end_) {
      if (!eof_) return kNeedMore;
      return dataset_error(line_place(open_line), "a quote is opened and never closed");
    }
    if (quote + 1 == end_ && !eof_) return kNeedMore;  // the next byte may be a second quote
    if (b[quote + 1] != '"') return quote;
    p = quote + 2;
  }
}

void CsvReader::finish(std::vector<std::string_view>& fields) {
  fields.clear();
  char* const b = buffer_.data();
  for (Span& span : spans_) {
    if (span.doubled_quotes) {
      size_t out = span.begin;
      for (size_t in = span.begin; in < span.end; ++in) {
        b[out++] = b[in];
        if (b[in] == '"') ++in;
      }
      span.end = out;
    }
    fields.emplace_back(b + span.begin, span.end - span.begin);
  }
}

}  // namespace trainyard
