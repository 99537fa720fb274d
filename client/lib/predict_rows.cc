#include "client/lib/predict_rows.h"

#include <zlib.h>

#include <algorithm>

#include "src/base/text.h"

namespace trainyard::client {
namespace {

Error invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID", std::move(message));
}

/// Returns the offset after the newline of the row that begins at `begin`. Newlines in quotes do
/// not end a row.
size_t end_of_row(std::string_view text, size_t begin) {
  bool quoted = false;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;  // a doubled quote toggles twice
    if (text[i] == '\n' && !quoted) return i + 1;
  }
  return text.size();
}

void append_be32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

}  // namespace

Result<std::string> gunzip_if_compressed(std::string bytes) {
  if (!bytes.starts_with("\x1f\x8b")) return bytes;
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  std::string buffer(1 << 16, '\0');
  int code = Z_OK;
  while (code == Z_OK && static_cast<int64_t>(out.size()) <= kRowFileBytesMax) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    code = inflate(&stream, Z_NO_FLUSH);
    out.append(buffer, 0, buffer.size() - stream.avail_out);
    if (code == Z_BUF_ERROR) break;
    if (code == Z_STREAM_END && stream.avail_in > 0) {  // gzip members may be concatenated
      code = inflateReset(&stream);
    }
  }
  inflateEnd(&stream);
  if (code == Z_STREAM_END) return out;
  if (code == Z_OK)
    return invalid("more than " + human_bytes(kRowFileBytesMax) + " when decompressed");
  return invalid("damaged or truncated gzip data");
}

Result<std::vector<std::string>> split_csv(std::string_view text, bool has_header,
                                           size_t bytes_max) {
  if (text.size() <= bytes_max) return std::vector<std::string>{std::string(text)};
  const size_t header_end = has_header ? end_of_row(text, 0) : 0;
  const std::string_view header = text.substr(0, header_end);
  std::vector<std::string> pieces;
  std::string piece(header);
  for (size_t begin = header_end; begin < text.size();) {
    const size_t end = end_of_row(text, begin);
    const std::string_view row = text.substr(begin, end - begin);
    if (header.size() + row.size() > bytes_max) {
      return invalid("the row at byte " + std::to_string(begin) + " is longer than " +
                     human_bytes(static_cast<int64_t>(bytes_max)) + "; is a quote not closed?");
    }
    if (piece.size() + row.size() > bytes_max) {
      pieces.push_back(std::move(piece));
      piece = header;
    }
    piece += row;
    begin = end;
  }
  pieces.push_back(std::move(piece));
  return pieces;
}

Result<std::vector<std::string>> split_lines(std::string_view text, size_t bytes_max) {
  std::vector<std::string> pieces(1);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = text.substr(begin, end - begin);
    if (line.size() > bytes_max) {
      return invalid("the line at byte " + std::to_string(begin) + " is longer than " +
                     human_bytes(static_cast<int64_t>(bytes_max)));
    }
    if (pieces.back().size() + line.size() > bytes_max) pieces.emplace_back();
    pieces.back() += line;
    begin = end;
  }
  return pieces;
}

std::vector<int64_t> idx_shape(std::string_view bytes) {
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8) return {};
  const size_t rank = static_cast<unsigned char>(bytes[3]);
  if (rank == 0 || bytes.size() < 4 + 4 * rank) return {};
  std::vector<int64_t> shape;
  for (size_t d = 0; d < rank; ++d) {
    int64_t size = 0;
    for (size_t b = 0; b < 4; ++b) {
      size = size << 8 | static_cast<unsigned char>(bytes[4 + 4 * d + b]);
    }
    shape.push_back(size);
  }
  return shape;
}

Result<std::vector<std::string>> split_idx(std::string_view bytes, size_t bytes_max) {
  if (bytes.size() <= bytes_max) return std::vector<std::string>{std::string(bytes)};
  const std::vector<int64_t> shape = idx_shape(bytes);
  if (shape.empty()) return invalid("not an IDX file of unsigned bytes");
  const size_t header = 4 + 4 * shape.size();
  size_t row = 1;
  for (size_t d = 1; d < shape.size(); ++d) {
    row *= static_cast<size_t>(shape[d]);
    if (row == 0 || row > bytes_max) break;
  }
  if (row == 0 || header + row > bytes_max) return invalid("IDX rows are too large for a request");
  const size_t body = bytes.size() - header;
  if (body % row != 0 || body / row != static_cast<size_t>(shape[0])) {
    return invalid("the IDX header says " + std::to_string(shape[0]) + " rows of " +
                   std::to_string(row) + " bytes, but the file has " + std::to_string(body) +
                   " bytes");
  }
  const size_t rows_max = (bytes_max - header) / row;
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < static_cast<size_t>(shape[0]); begin += rows_max) {
    const size_t count = std::min(rows_max, static_cast<size_t>(shape[0]) - begin);
    std::string piece(bytes.substr(0, 4));
    append_be32(piece, static_cast<uint32_t>(count));
    piece += bytes.substr(8, header - 8);
    piece += bytes.substr(header + begin * row, count * row);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<std::vector<std::string>> csv_fields(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<std::vector<std::string>> rows;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = end_of_row(text, begin);
    std::string_view row = text.substr(begin, end - begin);
    begin = end;
    while (!row.empty() && (row.back() == '\n' || row.back() == '\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (size_t i = 0; i < row.size(); ++i) {
      if (quoted && row[i] == '"' && i + 1 < row.size() && row[i + 1] == '"') {
        fields.back() += row[++i];
      } else if (row[i] == '"') {
        quoted = !quoted;
      } else if (row[i] == ',' && !quoted) {
        fields.emplace_back();
      } else {
        fields.back() += row[i];
      }
    }
    rows.push_back(std::move(fields));
  }
  return rows;
}

}  // namespace trainyard::client
