#include "client/cli/row_files.h"

#include <array>
#include <charconv>
#include <cmath>

#include "src/data/arrays/array_file.h"
#include "src/data/problems.h"
#include "src/data/table/json_lines.h"

namespace trainyard::cli {
namespace {

constexpr const char* kWhat = "rows";

std::string idx_of(const Shape& shape, std::span<const uint8_t> pixels) {
  std::string idx = {0, 0, 8, static_cast<char>(shape.rank())};
  for (const int64_t size : shape.dims()) {
    for (int shift = 24; shift >= 0; shift -= 8) idx += static_cast<char>(size >> shift & 0xff);
  }
  return idx.append(pixels.begin(), pixels.end());
}

std::string csv_of(std::span<const float> values, size_t width) {
  std::string csv;
  for (size_t i = 0; i < values.size(); ++i) {
    std::array<char, 32> text;
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), values[i]);
    // NaN is not written as an empty field, because a line with one empty field would be skipped as
    // an empty line.
    csv += std::isnan(values[i]) ? std::string_view("NA") : std::string_view(text.data(), end);
    csv += (i + 1) % width == 0 ? '\n' : ',';
  }
  return csv;
}

/// Returns the text as a CSV field that is parsed back unchanged, including spaces at its ends. An
/// empty text is quoted, because a line with one empty field would be skipped.
std::string quoted_field(std::string_view text) {
  const bool blank = text.empty() || text.front() == ' ' || text.front() == '\t' ||
                     text.back() == ' ' || text.back() == '\t';
  if (!blank && text.find_first_of(",\"\n\r") == text.npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + '"';
}

void append_record(const auto& fields, std::string& csv) {
  for (size_t i = 0; i < fields.size(); ++i) {
    csv += (i > 0 ? "," : "") + quoted_field(fields[i]);
  }
  csv += '\n';
}

}  // namespace

Result<RowText> rows_of_json_lines(std::string_view bytes) {
  RowText rows{false, true, {}};
  std::vector<std::string> names;
  std::vector<std::string_view> fields;
  for (const bool counting : {true, false}) {  // the first pass collects the names of all members
    const std::unique_ptr<ByteSource> source = open_memory_source(bytes, kWhat);
    JsonLinesTable table(*source, kWhat, names);
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, table.next(fields));
      if (!more) break;
      if (!counting) append_record(fields, rows.bytes);
    }
    names = table.names();
    if (counting) append_record(names, rows.bytes);
  }
  if (names.empty()) return dataset_error(kWhat, "there are no rows");
  return rows;
}

Result<RowText> rows_of_npy(std::string_view bytes) {
  const std::unique_ptr<ByteSource> source = open_memory_source(bytes, kWhat);
  ASSIGN_OR_RETURN(Array array, read_npy(*source, kWhat));
  const Shape shape = array.shape();
  if (array.type().text() || shape.rank() < 1 || shape.rank() > 4 || shape.elements() == 0) {
    return dataset_error(kWhat, "an array " + shape.to_string() +
                                    (array.type().text() ? " of texts" : "") +
                                    ", expected numbers: [N, F], [N, H, W] or [N, C, H, W]");
  }
  if (shape.rank() > 2 && array.type().u8() && shape[0] <= UINT32_MAX) {
    return RowText{true, false, idx_of(shape, std::move(array).take_bytes())};
  }
  const auto width = static_cast<size_t>(shape.elements() / shape[0]);
  return RowText{false, false, csv_of(array.to_floats(), width)};
}

}  // namespace trainyard::cli
