#include "client/cli/row_files.h"

#include <array>
#include <charconv>
#include <cmath>

#include "src/data/array_file.h"
#include "src/data/problems.h"

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
    // Not an empty field: a line of one would be an empty line, which is passed over.
    csv += std::isnan(values[i]) ? std::string_view("NA") : std::string_view(text.data(), end);
    csv += (i + 1) % width == 0 ? '\n' : ',';
  }
  return csv;
}

}  // namespace

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
