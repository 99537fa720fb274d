// client/init/table_head.h: the beginning of a large table, which stands for the rest.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/base/result.h"

namespace trainyard::init {

/// So much of a table is read, decompressed.
inline constexpr int64_t kHeadBytesMax = int64_t{32} << 20;

struct Head {
  std::filesystem::path path;
  bool whole = true;
  int64_t bytes = 0;  // of all, of which `path` holds the first ones; 0: not known
};

/// The file itself, or a copy in `scratch` of its first records, `bytes` and the rest of a block.
/// `quotes`: as of RecordBlocks.
Result<Head> take_head(const std::filesystem::path& path, bool quotes, int64_t bytes,
                       const std::filesystem::path& scratch);

/// Of the whole file, by the share of it that was read; `rows` are those of the head.
int64_t estimate_rows(const Head& head, int64_t rows);

}  // namespace trainyard::init
