#include "client/init/table_head.h"

#include <cmath>
#include <fstream>
#include <memory>

#include "src/data/files/byte_source.h"
#include "src/data/table/record_blocks.h"

namespace trainyard::init {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = size_t{64} << 10;

Result<Head> take_head(const fs::path& path, bool quotes, int64_t bytes, const fs::path& scratch) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, "data"));
  if (source->bytes_max() <= bytes) return Head{path};
  RecordBlocks blocks(*source, 0, quotes, kBlockBytes);
  const fs::path copy = scratch / "head";
  std::ofstream out(copy, std::ios::binary);
  RecordBlock block;
  int64_t taken = 0;
  while (taken < bytes) {
    ASSIGN_OR_RETURN(const bool more, blocks.next(block));
    if (!more) return Head{path};
    out.write(block.bytes.data(), static_cast<std::streamsize>(block.size));
    taken += static_cast<int64_t>(block.size);
  }
  out.close();
  if (!out) {
    return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL",
                      "cannot write " + copy.string());
  }
  return Head{copy, false, source->compressed() ? 0 : source->bytes_max()};
}

int64_t estimate_rows(const Head& head, int64_t rows) {
  if (head.whole || head.bytes == 0) return rows;
  std::error_code ec;
  const auto read = static_cast<double>(fs::file_size(head.path, ec));
  return std::llround(static_cast<double>(rows) * static_cast<double>(head.bytes) / read);
}

}  // namespace trainyard::init
