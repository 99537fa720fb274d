#include "src/data/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/data/limits.h"

namespace trainyard {
namespace {

constexpr const char* kStatisticsInvalid = "DATASET_INVALID";

/// Returns the statistics of the numbers that `visit` passes to its argument, always in the same
/// order; nullopt if there are none. Takes two passes, since a one-pass variance is inaccurate for
/// large means.
template <typename Visit>
std::optional<NumberStatistics> measure_numbers(const Visit& visit) {
  int64_t count = 0;
  double sum = 0;
  NumberStatistics s{std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()};
  visit([&](double x) {
    ++count;
    sum += x;
    s.min = std::min(s.min, x);
    s.max = std::max(s.max, x);
  });
  if (count == 0) return std::nullopt;
  const auto n = static_cast<double>(count);
  // Rounding may put the mean of equal values outside of [min, max].
  s.mean = std::clamp(sum / n, s.min, s.max);
  double squares = 0;
  visit([&](double x) { squares += (x - s.mean) * (x - s.mean); });
  s.std = std::sqrt(squares / n);
  return s;
}

/// Returns how often each of `kinds` codes occurs at `first`, `first` + `stride`, ...; -1 is
/// missing.
std::vector<int64_t> count_codes(std::span<const int32_t> codes, size_t first, size_t stride,
                                 size_t kinds) {
  std::vector<int64_t> counts(kinds);
  for (size_t i = first; i < codes.size(); i += stride) {
    if (codes[i] >= 0) ++counts.at(static_cast<size_t>(codes[i]));
  }
  return counts;
}

/// Returns the statistics of channel `c` of all images.
NumberStatistics measure_channel(std::span<const float> images, const Shape& image, int64_t c) {
  const auto pixels = static_cast<size_t>(image[1] * image[2]);
  const auto stride = static_cast<size_t>(image[0]) * pixels;
  const auto all = measure_numbers([&](const auto& add) {
    for (size_t i = static_cast<size_t>(c) * pixels; i < images.size(); i += stride) {
      for (const float x : images.subspan(i, pixels)) add(static_cast<double>(x));
    }
  });
  return all.value_or(NumberStatistics{});
}

/// Returns the statistics of each channel of byte images.
std::vector<NumberStatistics> measure_bytes(const TypedRows& train, const Shape& image) {
  const auto channels = static_cast<size_t>(image[0]);
  std::vector<ByteRange> ranges = train.image_ranges;
  if (ranges.empty()) {
    ranges.resize(channels);
    const auto size = static_cast<size_t>(image.elements());
    for (size_t i = 0; i < train.image_u8.size(); i += size) {
      widen_ranges(std::span(train.image_u8).subspan(i, size), ranges);
    }
  }
  const auto count = static_cast<double>(train.rows * image[1] * image[2]);
  std::vector<NumberStatistics> statistics;
  for (size_t c = 0; c < channels; ++c) {
    int64_t sum = 0, squares = 0;
    for (size_t i = 2 * c; i < train.image_sums.size(); i += 2 * channels) {
      sum += train.image_sums[i];
      squares += train.image_sums[i + 1];
    }
    NumberStatistics s{static_cast<double>(ranges[c].low), static_cast<double>(ranges[c].high)};
    s.mean = static_cast<double>(sum) / count;
    s.std = std::sqrt(std::max(0.0, static_cast<double>(squares) / count - s.mean * s.mean));
    statistics.push_back(s);
  }
  return statistics;
}

/// Returns the statistics of each column of a table [rows, columns], where NaN is a missing value.
/// Each pass reads the rows once for all columns, so that memory is read sequentially. Each
/// column's numbers are added in the order of the rows.
std::vector<std::optional<NumberStatistics>> measure_columns(std::span<const float> values,
                                                             size_t columns) {
  std::vector<int64_t> counts(columns);
  std::vector<double> sums(columns), squares(columns), means(columns);
  std::vector<float> low(columns, std::numeric_limits<float>::infinity());
  std::vector<float> high(columns, -std::numeric_limits<float>::infinity());
  for (const float* row = values.data(); row != values.data() + values.size(); row += columns) {
    for (size_t c = 0; c < columns; ++c) {
      const bool there = !std::isnan(row[c]);
      counts[c] += there ? 1 : 0;
      sums[c] += there ? static_cast<double>(row[c]) : 0.0;
      low[c] = row[c] < low[c] ? row[c] : low[c];  // the comparison is false for NaN
      high[c] = row[c] > high[c] ? row[c] : high[c];
    }
  }
  for (size_t c = 0; c < columns; ++c) {
    if (counts[c] == 0) continue;
    means[c] = std::clamp(sums[c] / static_cast<double>(counts[c]), static_cast<double>(low[c]),
                          static_cast<double>(high[c]));
  }
  for (const float* row = values.data(); row != values.data() + values.size(); row += columns) {
    for (size_t c = 0; c < columns; ++c) {
      const double off = static_cast<double>(row[c]) - means[c];
      squares[c] += std::isnan(row[c]) ? 0.0 : off * off;
    }
  }
  std::vector<std::optional<NumberStatistics>> all(columns);
  for (size_t c = 0; c < columns; ++c) {
    if (counts[c] == 0) continue;
    all[c] = {static_cast<double>(low[c]), static_cast<double>(high[c]), means[c],
              std::sqrt(squares[c] / static_cast<double>(counts[c]))};
  }
  return all;
}

std::optional<NumberStatistics> measure_lengths(const TextSchema& text, const Partition& train) {
  const auto length = static_cast<size_t>(text.max_length);
  return measure_numbers([&](const auto& add) {
    for (size_t i = 0; i < train.tokens.size(); i += length) {
      const auto row = train.tokens.subspan(i, length);
      add(static_cast<double>(std::ssize(row) - std::ranges::count(row, text.padding_id())));
    }
  });
}

nlohmann::json numbers_to_json(const std::optional<NumberStatistics>& s) {
  if (!s) return nullptr;
  return {{"min", s->min}, {"max", s->max}, {"mean", s->mean}, {"std", s->std}};
}

Result<std::optional<NumberStatistics>> numbers_from_json(const nlohmann::json& json) {
  if (json.is_null()) return std::optional<NumberStatistics>();
  JsonFields fields(json, "schema: statistics", kStatisticsInvalid);
  NumberStatistics s{fields.number("min"), fields.number("max"), fields.number("mean"),
                     fields.number("std")};
  if (Status status = fields.finish(); !status.ok()) return std::move(status).error();
  return std::optional(s);
}

Error mismatch() {
  return make_error(ErrorCode::kInvalidArgument, kStatisticsInvalid,
                    "schema: the statistics are those of another schema");
}

Result<std::vector<int64_t>> counts_from_json(const nlohmann::json& json, int64_t rows,
                                              size_t kinds) {
  if (!json.is_array() || json.size() != kinds) return mismatch();
  std::vector<int64_t> counts;
  int64_t left = rows;
  for (const nlohmann::json& count : json) {
    if (!count.is_number_integer()) return mismatch();
    counts.push_back(count.get<int64_t>());
    if (counts.back() < 0 || counts.back() > left) return mismatch();
    left -= counts.back();
  }
  return counts;
}

}  // namespace

NumberStatistics minus_offset(NumberStatistics s, double offset) {
  s.min -= offset;
  s.max -= offset;
  s.mean -= offset;
  return s;
}

namespace {

void add_offset(std::optional<NumberStatistics>& s, double offset) {
  if (s && offset != 0) *s = minus_offset(*s, -offset);
}

}  // namespace

DatasetStatistics measure(const DatasetSchema& schema, const TypedRows& rows) {
  const Partition train = rows.view();
  DatasetStatistics s;
  const auto numeric = static_cast<size_t>(schema.numeric_columns());
  s.numeric = measure_columns(train.numeric, numeric);
  const std::vector<double> offsets = schema.numeric_offsets();
  for (size_t c = 0; c < offsets.size(); ++c) add_offset(s.numeric[c], offsets[c]);
  const auto categorical = static_cast<size_t>(schema.categorical_columns());
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind != ColumnSchema::Kind::kCategorical) continue;
    s.categories.push_back(
        count_codes(train.category, s.categories.size(), categorical, column.categories.size()));
  }
  s.classes = count_codes(train.target_class, 0, 1, schema.target.classes.size());
  s.target = measure_columns(train.target_numeric, 1).front();
  add_offset(s.target, schema.target.offset);
  if (schema.kind == DatasetSchema::Kind::kImage && schema.image_dtype == DType::kU8) {
    s.channels = measure_bytes(rows, schema.image);
  } else if (schema.kind == DatasetSchema::Kind::kImage) {
    for (int64_t c = 0; c < schema.image[0]; ++c) {
      s.channels.push_back(measure_channel(train.image_f32, schema.image, c));
    }
  }
  if (schema.documents) {
    s.tokens_per_row = measure_lengths(schema.documents->train);
  } else if (schema.kind == DatasetSchema::Kind::kText && !schema.stream()) {
    s.tokens_per_row = measure_lengths(schema.text, train);
  }
  return s;
}

NumberStatistics measure_lengths(const DocumentCounts& documents) {
  if (documents.lengths.empty()) return {};
  const auto n = static_cast<double>(documents.documents());
  NumberStatistics s{static_cast<double>(documents.lengths.begin()->first),
                     static_cast<double>(documents.longest()),
                     static_cast<double>(documents.tokens()) / n};
  double squares = 0;
  for (const auto& [length, count] : documents.lengths) {
    const double off = static_cast<double>(length) - s.mean;
    squares += off * off * static_cast<double>(count);
  }
  s.std = std::sqrt(squares / n);
  return s;
}

nlohmann::json statistics_to_json(const DatasetStatistics& s) {
  nlohmann::json json = {{"numeric", nlohmann::json::array()},
                         {"categories", s.categories},
                         {"classes", s.classes},
                         {"target", numbers_to_json(s.target)},
                         {"channels", nlohmann::json::array()},
                         {"tokens_per_row", numbers_to_json(s.tokens_per_row)}};
  for (const auto& column : s.numeric) json["numeric"].push_back(numbers_to_json(column));
  for (const auto& channel : s.channels) json["channels"].push_back(numbers_to_json(channel));
  return json;
}

Result<DatasetStatistics> statistics_from_json(const nlohmann::json& json,
                                               const DatasetSchema& schema) {
  JsonFields fields(json, "schema: statistics", kStatisticsInvalid);
  DatasetStatistics s;
  for (const nlohmann::json& column : fields.child("numeric")) {
    ASSIGN_OR_RETURN(s.numeric.emplace_back(), numbers_from_json(column));
  }
  const nlohmann::json& categories = fields.child("categories");
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind != ColumnSchema::Kind::kCategorical) continue;
    const size_t i = s.categories.size();
    if (!categories.is_array() || i >= categories.size()) return mismatch();
    ASSIGN_OR_RETURN(s.categories.emplace_back(),
                     counts_from_json(categories[i], schema.train_rows, column.categories.size()));
  }
  ASSIGN_OR_RETURN(s.classes, counts_from_json(fields.child("classes"), schema.train_rows,
                                               schema.target.classes.size()));
  ASSIGN_OR_RETURN(s.target, numbers_from_json(fields.child("target")));
  for (const nlohmann::json& channel : fields.child("channels")) {
    ASSIGN_OR_RETURN(const auto numbers, numbers_from_json(channel));
    if (!numbers) return mismatch();
    s.channels.push_back(*numbers);
  }
  ASSIGN_OR_RETURN(s.tokens_per_row, numbers_from_json(fields.child("tokens_per_row")));
  if (Status status = fields.finish(); !status.ok()) return std::move(status).error();
  const bool image = schema.kind == DatasetSchema::Kind::kImage;
  if (std::ssize(s.numeric) != schema.numeric_columns() ||
      categories.size() != s.categories.size() ||
      std::ssize(s.channels) != (image ? schema.image[0] : 0)) {
    return mismatch();
  }
  return s;
}

}  // namespace trainyard
