#include "src/data/table/table_reader.h"

#include "src/data/problems.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_reader.h"
#include "src/data/table/json_lines.h"

namespace trainyard {
namespace {

class CsvTable final : public TableReader {
 public:
  CsvTable(ByteSource& source, char delimiter, const std::string& what)
      : reader_(source, delimiter, what) {}

  /// Reads the header, or numbers the columns of the first row.
  Status start(bool header, const std::string& what) {
    ASSIGN_OR_RETURN(const bool more, reader_.next(first_));
    if (!more) return dataset_error(what, "the file is empty");
    if (!header) {
      names_ = numbered_names(first_.size());
      first_waits_ = true;
      return {};
    }
    ASSIGN_OR_RETURN(names_, header_names(first_, what));
    return {};
  }
  const std::vector<std::string>& names() const override { return names_; }
  Result<bool> next(std::vector<std::string_view>& fields) override {
    if (!first_waits_) return reader_.next(fields);
    first_waits_ = false;
    fields = first_;
    return true;
  }
  int64_t line() const override { return reader_.line(); }
  int64_t rows_begin() const override {
    return first_waits_ ? reader_.record_begin() : reader_.record_end();
  }

 private:
  CsvReader reader_;
  std::vector<std::string> names_;
  std::vector<std::string_view> first_;
  bool first_waits_ = false;
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
