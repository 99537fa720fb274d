#include "src/data/table/table_blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "src/base/cores.h"
#include "src/data/files/text_files.h"

namespace trainyard {
namespace {

constexpr const char* kWhat = "data";  // for error messages, which are never shown
constexpr int kThreadsMax = 64;

/// Returns the number of threads: no more than the file can have blocks. (For a compressed file,
/// only an upper bound of its size is known.)
int threads_for(const TableThreads& threads, const ByteSource& source) {
  const int64_t blocks = source.bytes_max() / static_cast<int64_t>(threads.block_bytes) + 1;
  const int wish = threads.count > 0 ? threads.count : usable_cores();
  return static_cast<int>(std::clamp<int64_t>(blocks, 1, std::min(wish, kThreadsMax)));
}

/// Processes blocks until there are no more or a thread stops all.
void run(RecordBlocks& blocks, const BlockWork& work, std::atomic<bool>& stopped) {
  RecordBlock block;
  while (!stopped) {
    const Result<bool> more = blocks.next(block);
    if (more.ok() && !*more) return;
    if (!more.ok() || !work(block)) stopped = true;
  }
}

}  // namespace

BlockRows::BlockRows(const CsvOptions& options, std::vector<std::string> names)
    : delimiter_(options.delimiter), names_(std::move(names)), no_bytes_(open_plain_source({})) {
  if (options.json_lines) json_.emplace(*no_bytes_, kWhat, names_);
}

bool BlockRows::read(RecordBlock& block,
                     const std::function<bool(const std::vector<std::string_view>& fields)>& row) {
  const auto read_all = [&](auto& reader) {
    for (;;) {
      const Result<bool> more = reader.next(fields_);
      if (!more.ok()) return false;
      if (!*more) return true;
      if (!row(fields_)) return false;
    }
  };
  if (!json_) {
    CsvReader reader(std::move(block.bytes), block.size, delimiter_, kWhat);
    const bool processed = read_all(reader);
    block.bytes = std::move(reader).take_buffer();
    return processed;
  }
  const std::string_view text(block.bytes.data(), block.size);
  // The reader removes a byte order mark before its first line, which is correct only in the file's
  // first block.
  if (block.index > 0 && text.starts_with(kByteOrderMark)) return false;
  const std::unique_ptr<ByteSource> source = open_plain_source(text);
  json_->continue_with(*source);
  return read_all(*json_);
}

bool read_blocks(const CsvOptions& options, const std::filesystem::path& path,
                 const TableThreads& threads, int64_t rows_begin,
                 const std::function<BlockWork()>& start_work) {
  const Result<std::unique_ptr<ByteSource>> source = open_file_source(path, kWhat);
  if (!source.ok()) return false;
  RecordBlocks blocks(**source, rows_begin, !options.json_lines, threads.block_bytes);
  const int count = threads_for(threads, **source);
  std::vector<BlockWork> works;
  for (int i = 0; i < count; ++i) works.push_back(start_work());
  std::vector<std::exception_ptr> faults(works.size());
  std::atomic<bool> stopped = false;
  const auto run_one = [&](size_t i) noexcept {
    try {
      run(blocks, works[i], stopped);
    } catch (...) {
      faults[i] = std::current_exception();
      stopped = true;
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < works.size(); ++i) others.emplace_back(run_one, i);
    run_one(0);
  }
  for (const std::exception_ptr& fault : faults) {
    if (fault) std::rethrow_exception(fault);
  }
  return !stopped;
}

}  // namespace trainyard
