// src/data/table/table_blocks.h: a table's rows read by several threads, block by block.
//
// Threads only read what has nothing to refuse. Where a block has a row that the caller does not
// take, everything stops, and the caller reads the file again, one row after another: so a refusal
// is always the one that the first bad row of the file deserves, with its number and line, however
// many threads there are.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/table/csv_reader.h"
#include "src/data/table/json_lines.h"
#include "src/data/table/record_blocks.h"

namespace trainyard {

/// The rows of one block after another, on one thread.
class BlockRows {
 public:
  /// `names` are the columns; of JSON lines those that are known.
  BlockRows(const CsvOptions& options, std::vector<std::string> names);
  /// Grows with new members of JSON lines.
  const std::vector<std::string>& names() const { return json_ ? json_->names() : names_; }
  /// Calls row(fields) for each; false once that is false, or if something is to be refused. The
  /// views are valid until row() returns.
  bool read(RecordBlock& block,
            const std::function<bool(const std::vector<std::string_view>& fields)>& row);

 private:
  const char delimiter_;
  const std::vector<std::string> names_;
  std::unique_ptr<ByteSource> no_bytes_;
  std::optional<JsonLinesTable> json_;
  std::vector<std::string_view> fields_;
};

/// A thread's part of the work: takes a block; false to stop everything.
using BlockWork = std::function<bool(RecordBlock& block)>;

/// Gives all blocks of the file's rows to threads, each of which has work of its own, made by
/// `start_work` before it begins. False if not all were taken. Throws what a thread threw.
bool read_blocks(const CsvOptions& options, const std::filesystem::path& path,
                 const TableThreads& threads, int64_t rows_begin,
                 const std::function<BlockWork()>& start_work);

}  // namespace trainyard
