// client/init/table_head.h: the beginning of a large table, which represents the whole table.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/base/result.h"

namespace trainyard::init {

/// The number of decompressed bytes that are read from a table.
inline constexpr int64_t kHeadBytesMax = int64_t{32} << 20;

struct Head {
  std::filesystem::path path;
  bool whole = true;
  int64_t bytes = 0;  // size of the whole file, of which `path` has the beginning; 0: unknown
};

/// Returns the file itself if it is small, or else a copy in `scratch` of its first records:
/// `bytes` rounded up to whole blocks. `quotes` is passed to RecordBlocks.
Result<Head> take_head(const std::filesystem::path& path, bool quotes, int64_t bytes,
                       const std::filesystem::path& scratch);

/// Returns the estimated number of rows of the whole file, from the share of its bytes in the head,
/// which has `rows` rows.
int64_t estimate_rows(const Head& head, int64_t rows);

}  // namespace trainyard::init
