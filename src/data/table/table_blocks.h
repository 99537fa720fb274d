// src/data/table/table_blocks.h: reads a table's rows with several threads, block by block.
//
// Threads never report errors. If a block has a row that must be refused, all threads stop, and the
// caller reads the file again on one thread, one row after another. So the error is always that of
// the first bad row of the file, with its number and line, independent of the number of threads.
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

/// Reads the rows of one block after another. Each thread has its own.
class BlockRows {
 public:
  /// `names` are the columns; for JSON lines the known ones.
  BlockRows(const CsvOptions& options, std::vector<std::string> names);
  /// Returns the columns; for JSON lines new members are appended while rows are read.
  const std::vector<std::string>& names() const { return json_ ? json_->names() : names_; }
  /// Calls row(fields) for each row of the block. Returns false as soon as `row` does, or if the
  /// block is invalid. The views are valid until row() returns.
  bool read(RecordBlock& block,
            const std::function<bool(const std::vector<std::string_view>& fields)>& row);

 private:
  const char delimiter_;
  const std::vector<std::string> names_;
  std::unique_ptr<ByteSource> no_bytes_;
  std::optional<JsonLinesTable> json_;
  std::vector<std::string_view> fields_;
};

/// Processes a block on one of the threads. Returns false to stop all threads.
using BlockWork = std::function<bool(RecordBlock& block)>;

/// Processes all blocks of the file's rows with several threads. Calls `start_work` once for each
/// thread, before any starts, to create its work. Returns false if not all blocks were processed.
/// Rethrows the exception of a thread.
bool read_blocks(const CsvOptions& options, const std::filesystem::path& path,
                 const TableThreads& threads, int64_t rows_begin,
                 const std::function<BlockWork()>& start_work);

}  // namespace trainyard
