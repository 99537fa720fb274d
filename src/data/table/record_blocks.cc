#include "src/data/table/record_blocks.h"

#include <algorithm>
#include <cstring>

#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/csv_reader.h"

namespace trainyard {
namespace {

/// Returns the end of the last complete record in the text; 0 if there is none.
size_t find_last_end(const char* text, size_t size, bool quotes) {
  bool inside = false;  // whether the position is inside a quoted field; begins at the text's end
  if (quotes && std::memchr(text, '"', size) != nullptr) {
    inside = std::count(text, text + size, '"') % 2 != 0;
  }
  for (size_t end = size; end > 0; --end) {
    const char c = text[end - 1];
    if (c == '\n' && !inside) return end;
    if (c == '"' && quotes) inside = !inside;
  }
  return 0;
}

}  // namespace

Status RecordBlocks::skip(std::vector<char>& room) {
  while (skipped_ > 0) {
    const size_t part = std::min(block_bytes_, static_cast<size_t>(skipped_));
    ASSIGN_OR_RETURN(const size_t n, read_full(source_, std::span(room).first(part)));
    if (n == 0) break;
    skipped_ -= static_cast<int64_t>(n);
  }
  return {};
}

Result<bool> RecordBlocks::next(RecordBlock& block) {
  const MutexLock lock(mu_);
  const auto grow = [&](size_t size) {
    if (block.bytes.size() < size) block.bytes.resize(size);
  };
  grow(rest_.size() + block_bytes_ + kCsvPadding);
  if (Status s = skip(block.bytes); !s.ok()) return std::move(s).error();
  std::ranges::copy(rest_, block.bytes.begin());
  size_t size = rest_.size();
  size_t end = 0;
  while (end == 0 && !eof_) {
    if (size > kLineBytesMax) return dataset_error("data", "a record is too long");
    grow(size + block_bytes_ + kCsvPadding);
    const std::span<char> space = std::span(block.bytes).subspan(size, block_bytes_);
    ASSIGN_OR_RETURN(const size_t n, read_full(source_, space));
    eof_ = n < space.size();
    size += n;
    end = eof_ ? size : find_last_end(block.bytes.data(), size, quotes_);
  }
  if (eof_) end = size;
  if (end == 0) return false;
  rest_.assign(block.bytes.begin() + static_cast<ptrdiff_t>(end),
               block.bytes.begin() + static_cast<ptrdiff_t>(size));
  block.size = end;
  block.index = index_++;
  return true;
}

}  // namespace trainyard
