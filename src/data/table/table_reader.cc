#include "src/data/table/table_reader.h"

#include <optional>
#include <utility>

#include "src/data/problems.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_reader.h"
#include "src/data/table/json_lines.h"

namespace trainyard {
namespace {

/// A record that outlives the reader's next one.
struct OwnRecord {
  std::vector<std::string> fields;
  int64_t line = 0;
};

class CsvTable final : public TableReader {
 public:
  CsvTable(ByteSource& source, char delimiter, const std::string& what)
      : reader_(source, delimiter, what) {}

  /// Reads the header, or numbers the columns of the first row.
  Status start(bool header, const std::string& what) {
    if (Status s = reader_.refuse_page(); !s.ok()) return s;
    ASSIGN_OR_RETURN(const bool more, read_ahead());
    if (!more) return dataset_error(what, "the file is empty");
    rows_begin_ = reader_.record_begin();
    if (!header) {
      names_ = numbered_names(ahead_[0].fields.size());
      return {};
    }
    std::vector<std::string> fields = std::move(ahead_[0].fields);
    ahead_.clear();
    rows_begin_ = reader_.record_end();
    if (Status s = read_first_rows(); !s.ok()) return s;
    if (has_equal_first_rows()) fit_header(views_of(ahead_.front().fields), fields);
    ASSIGN_OR_RETURN(names_, header_names(views_of(fields), what));
    return {};
  }
  const std::vector<std::string>& names() const override { return names_; }
  Result<bool> next(std::vector<std::string_view>& fields) override {
    if (served_ < ahead_.size()) {
      const OwnRecord& record = ahead_[served_++];
      fields.assign(record.fields.begin(), record.fields.end());
      return true;
    }
    if (failure_) return *failure_;
    served_ = SIZE_MAX;
    return reader_.next(fields);
  }
  int64_t line() const override {
    return served_ == SIZE_MAX ? reader_.line() : ahead_[served_ - 1].line;
  }
  int64_t rows_begin() const override { return rows_begin_; }
  bool has_blocks() const override { return !reader_.ends_by_cr(); }

 private:
  Result<bool> read_ahead() {
    std::vector<std::string_view> fields;
    ASSIGN_OR_RETURN(const bool more, reader_.next(fields));
    if (more) ahead_.push_back({{fields.begin(), fields.end()}, reader_.line()});
    return more;
  }
  /// Reads two rows, if there are so many. A malformed one is reported when next() reaches it.
  Status read_first_rows() {
    for (int i = 0; i < 2; ++i) {
      Result<bool> more = read_ahead();
      if (!more.ok() && more.error().violations.empty()) return std::move(more).error();
      if (!more.ok()) failure_ = std::move(more).error();
      if (failure_ || !*more) break;
    }
    return {};
  }
  static std::vector<std::string_view> views_of(const std::vector<std::string>& fields) {
    return {fields.begin(), fields.end()};
  }
  bool has_equal_first_rows() const {
    return !ahead_.empty() && ahead_.front().fields.size() == ahead_.back().fields.size();
  }

  CsvReader reader_;
  std::vector<std::string> names_;
  std::vector<OwnRecord> ahead_;  // rows that were read to understand the header
  size_t served_ = 0;  // how many of them next() has returned; SIZE_MAX: the reader goes on
  std::optional<Error> failure_;  // of the row after them
  int64_t rows_begin_ = 0;
};

}  // namespace

Result<std::unique_ptr<TableReader>> open_table(const CsvOptions& options, ByteSource& source,
                                                const std::string& what,
                                                const std::vector<std::string>& known) {
  if (options.json_lines) return std::make_unique<JsonLinesTable>(source, what, known);
  auto table = std::make_unique<CsvTable>(source, options.delimiter, what);
  if (Status s = table->start(options.header, what); !s.ok()) return std::move(s).error();
  return table;
}

}  // namespace trainyard
