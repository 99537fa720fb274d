// client/lib/predict_rows.h: splits a file's raw rows into Predict requests of allowed size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::client {

inline constexpr size_t kPredictBytesMax = 3 << 20;     // API limit of one request
inline constexpr int kPredictImagesMax = 4096;          // in one request
inline constexpr int64_t kRowFileBytesMax = 1LL << 30;  // after decompression

/// Decompresses gzip, which is recognized by its first two bytes; returns anything else unchanged.
Result<std::string> gunzip_if_compressed(std::string bytes);

/// Splits CSV text between rows, never inside quotes, into parts of at most `bytes_max`; each
/// begins with the header if there is one. Refuses a row that is longer.
Result<std::vector<std::string>> split_csv(std::string_view text, bool has_header,
                                           size_t bytes_max);

/// Splits text between lines into parts of at most `bytes_max`.
Result<std::vector<std::string>> split_lines(std::string_view text, size_t bytes_max);

/// Splits an IDX file of images into complete IDX files of at most `bytes_max`.
Result<std::vector<std::string>> split_idx(std::string_view bytes, size_t bytes_max);

/// Returns the fields of CSV text by row, with quotes removed. They are displayed next to
/// predictions; the server parses rows itself.
std::vector<std::vector<std::string>> csv_fields(std::string_view text);

/// Returns the dimensions of an IDX file; empty if the bytes are not an IDX file of unsigned bytes.
std::vector<int64_t> idx_shape(std::string_view bytes);

}  // namespace trainyard::client
