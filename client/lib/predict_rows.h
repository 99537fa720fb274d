// client/lib/predict_rows.h: raw rows of a file as Predict requests that each fit a message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::client {

inline constexpr size_t kPredictBytesMax = 3 << 20;     // of one request, by the API
inline constexpr int kPredictImagesMax = 4096;          // of one request
inline constexpr int64_t kRowFileBytesMax = 1LL << 30;  // unpacked

/// Decompresses gzip, recognized by its first two bytes; returns anything else unchanged.
Result<std::string> gunzip_if_packed(std::string bytes);

/// Cuts CSV text between rows (never inside quotes) into pieces of at most `bytes_max`, each
/// beginning with the header if there is one. A row longer than that is refused.
Result<std::vector<std::string>> split_csv(std::string_view text, bool has_header,
                                           size_t bytes_max);

/// Lines of text, in pieces of at most `bytes_max`.
Result<std::vector<std::string>> split_lines(std::string_view text, size_t bytes_max);

/// The same for an IDX file of images: each piece is an IDX file of its own.
Result<std::vector<std::string>> split_idx(std::string_view bytes, size_t bytes_max);

/// Fields of CSV text by row, quotes resolved. For display beside predictions; the server decides.
std::vector<std::vector<std::string>> csv_fields(std::string_view text);

/// Sizes of an IDX file's dimensions; empty if the bytes are not an IDX file of unsigned bytes.
std::vector<int64_t> idx_shape(std::string_view bytes);

}  // namespace trainyard::client
