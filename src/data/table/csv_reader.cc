#include "src/data/table/csv_reader.h"

#include <algorithm>
#include <cstring>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kNeedMore = SIZE_MAX;

bool is_blank(char c) { return c == ' ' || c == '\t'; }

}  // namespace

CsvReader::CsvReader(ByteSource& source, char delimiter, std::string what)
    : source_(source), delimiter_(delimiter), what_(std::move(what)), buffer_(kBufferBytes + 1) {
  TRAINYARD_CHECK(delimiter != '"' && delimiter != '\n' && delimiter != '\r' && delimiter != '\0',
                  "a delimiter that CSV cannot have");
  for (const char c : {delimiter, '\n', '"', '\0'})
    ends_plain_[static_cast<unsigned char>(c)] = true;
}

std::string CsvReader::line_place(int64_t line) const {
  return what_ + ": line " + std::to_string(line);
}

Status CsvReader::start() {
  started_ = true;
  if (Status s = fill(); !s.ok()) return s;
  const std::string_view text(buffer_.data(), end_);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return dataset_error(what_, "the file is UTF-16, expected UTF-8");
  }
  if (text.starts_with("\xef\xbb\xbf")) begin_ = 3;
  return {};
}

/// Keeps the partial record and reads more after it.
Status CsvReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t capacity = buffer_.size() - 1;
  if (end_ == capacity) {
    if (capacity >= kLineBytesMax) {
      return dataset_error(line_place(line_), "longer than " + human_bytes(int64_t{kLineBytesMax}) +
                                                  ", or a quote opened here is not closed");
    }
    buffer_.resize(2 * capacity + 1);
  }
  const std::span<char> space(buffer_.data() + end_, buffer_.size() - 1 - end_);
  ASSIGN_OR_RETURN(const size_t n, read_full(source_, space));
  end_ += n;
  eof_ = n < space.size();
  buffer_[end_] = '\0';
  return {};
}

Result<bool> CsvReader::next(std::vector<std::string_view>& fields) {
  if (!started_) {
    if (Status s = start(); !s.ok()) return std::move(s).error();
  }
  for (;;) {
    ASSIGN_OR_RETURN(const Outcome outcome, scan());
    if (outcome == Outcome::kEnd) return false;
    if (outcome == Outcome::kNeedMore) {
      if (Status s = fill(); !s.ok()) return std::move(s).error();
      continue;
    }
    record_line_ = line_;
    const bool empty_line = spans_.size() == 1 && !quoted_any_ && spans_[0].begin == spans_[0].end;
    if (!empty_line) finish(fields);
    begin_ = after_;
    line_ = line_after_;
    if (!empty_line) return true;
  }
}

/// Finds the fields of the record at begin_ and changes nothing else, so that it can start over
/// when there are more bytes.
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
      while (!ends_plain_[static_cast<unsigned char>(b[p])]) ++p;
      span.end = std::max(p, begin);
    }
    if (p == end_ && !eof_) return Outcome::kNeedMore;
    const bool at_end = p == end_;
    if (!at_end && b[p] != delimiter_ && b[p] != '\n') {
      const std::string field = "field " + std::to_string(spans_.size() + 1);
      if (b[p] == '\0') {
        return dataset_error(line_place(line_after_),
                             field + " holds a zero byte, expected UTF-8 text");
      }
      return dataset_error(line_place(line_after_),
                           field + (b[p] == '"' ? " contains a quote, expected the whole field in "
                                                  "quotes and inner quotes doubled"
                                                : " continues after its closing quote"));
    }
    if (!(span.begin > begin)) {  // not quoted: drop the blanks, and the CR of a CRLF
      if ((at_end || b[p] == '\n') && span.end > span.begin && b[span.end - 1] == '\r') --span.end;
      while (span.end > span.begin && is_blank(b[span.end - 1])) --span.end;
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

/// The closing quote of the field that opens at `open`, or kNeedMore.
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
                           "a quoted field holds a zero byte, expected UTF-8 text");
    }
    line_after_ += std::count(b + p, b + quote, '\n');
    if (quote == end_) {
      if (!eof_) return kNeedMore;
      return dataset_error(line_place(open_line), "a quote is opened and never closed");
    }
    if (quote + 1 == end_ && !eof_) return kNeedMore;  // it may be doubled
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
