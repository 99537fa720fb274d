#include "src/data/preprocessing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/data/limits.h"
#include "src/data/typed_rows.h"

namespace trainyard {
namespace {

__extension__ using Int128 = __int128;

constexpr double kByteScale = 1.0 / 255.0;

struct Moments {
  double mean = 0;
  double std = 1;
};

/// Returns the mean and population standard deviation of the finite values that `visit` passes to
/// its argument, always in the same order. Takes two passes, since a one-pass variance is
/// inaccurate for large means.
template <typename Visit>
Moments fit_moments(const Visit& visit) {
  int64_t count = 0;
  double sum = 0;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  visit([&](double x) {
    ++count;
    sum += x;
    low = std::min(low, x);
    high = std::max(high, x);
  });
  if (count == 0) return {};
  // The rounded mean of equal values would give a tiny deviation, and dividing by that huge values.
  if (low == high) return {low, 1};
  Moments m;
  m.mean = sum / static_cast<double>(count);
  double squares = 0;
  visit([&](double x) { squares += (x - m.mean) * (x - m.mean); });
  const double std = std::sqrt(squares / static_cast<double>(count));
  m.std = std > 0 && std::isfinite(std) ? std : 1;
  return m;
}

/// Returns the mean and deviation of bytes scaled to [0, 1]. Uses integers until the last division,
/// so that nothing is rounded before.
Moments moments_of_bytes(int64_t count, int64_t sum, int64_t squares) {
  if (count == 0) return {};
  const Int128 spread = Int128{count} * squares - Int128{sum} * sum;
  Moments m;
  m.mean = kByteScale * (static_cast<double>(sum) / static_cast<double>(count));
  if (spread > 0) {
    m.std = kByteScale * (std::sqrt(static_cast<double>(spread)) / static_cast<double>(count));
  }
  return m;
}

Moments fit_byte_channel(const Partition& p, std::span<const int64_t> rows, int64_t channels,
                         int64_t pixels, int64_t c) {
  int64_t sum = 0;
  int64_t squares = 0;
  for (const int64_t row : rows) {
    if (!p.image_sums.empty()) {
      const int64_t* sums = p.image_sums.data() + (row * channels + c) * 2;
      sum += sums[0];
      squares += sums[1];
      continue;
    }
    const uint8_t* x = p.image_u8.data() + (row * channels + c) * pixels;
    for (int64_t i = 0; i < pixels; ++i) {
      sum += x[i];
      squares += int64_t{x[i]} * x[i];
    }
  }
  return moments_of_bytes(std::ssize(rows) * pixels, sum, squares);
}

void fit_image(const DatasetSchema& schema, const Partition& partition,
               std::span<const int64_t> rows, Preprocessing& p) {
  const int64_t channels = schema.image[0];
  const int64_t pixels = schema.image[1] * schema.image[2];
  const bool bytes = schema.image_dtype == DType::kU8;
  p.image_scale = bytes ? kByteScale : 1;
  for (int64_t c = 0; c < channels; ++c) {
    const Moments m = bytes ? fit_byte_channel(partition, rows, channels, pixels, c)
                            : fit_moments([&](const auto& add) {
                                for (const int64_t row : rows) {
                                  const float* x =
                                      partition.image_f32.data() + (row * channels + c) * pixels;
                                  for (int64_t i = 0; i < pixels; ++i)
                                    add(static_cast<double>(x[i]));
                                }
                              });
    p.image_mean.push_back(m.mean);
    p.image_std.push_back(m.std);
  }
}

/// Returns a value by channel; a single one is that of all channels.
std::vector<double> by_channel(const std::vector<double>& values, int64_t channels) {
  if (values.size() == 1) return std::vector<double>(static_cast<size_t>(channels), values[0]);
  TRAINYARD_CHECK(std::ssize(values) == channels, "a scale of other channels");
  return values;
}

void set_scale(const DatasetSchema& schema, const FixedPixelScale& scale, Preprocessing& p) {
  TRAINYARD_CHECK(schema.kind == DatasetSchema::Kind::kImage && schema.image_dtype == DType::kU8,
                  "only 8-bit pixels are shares of their largest value");
  p.image_scale = kByteScale;
  p.image_mean = by_channel(scale.mean, schema.image[0]);
  p.image_std = by_channel(scale.std, schema.image[0]);
}

bool usable(const std::vector<double>& std) {
  return std::all_of(std.begin(), std.end(), [](double s) { return s > 0; });
}

}  // namespace

std::string Preprocessing::to_json() const {
  nlohmann::json json = {
      {"numeric_mean", numeric_mean}, {"numeric_std", numeric_std}, {"image_mean", image_mean},
      {"image_std", image_std},       {"image_scale", image_scale}, {"target_mean", target_mean},
      {"target_std", target_std},
  };
  if (context_length > 0) json["context_length"] = context_length;
  if (category_codes) json["category_codes"] = true;
  return json.dump();  // writes the shortest text that reads back as the same double
}

Result<Preprocessing> Preprocessing::from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, "preprocessing", "DATASET_INVALID"));
  JsonFields fields(json, "preprocessing", "DATASET_INVALID");
  Preprocessing p;
  p.numeric_mean = fields.numbers("numeric_mean");
  p.numeric_std = fields.numbers("numeric_std");
  p.image_mean = fields.numbers("image_mean");
  p.image_std = fields.numbers("image_std");
  p.image_scale = fields.number("image_scale");
  p.target_mean = fields.number("target_mean");
  p.target_std = fields.number("target_std");
  if (json.contains("context_length")) {
    p.context_length = fields.integer("context_length", 1, kContextLengthMax);
  }
  if (json.contains("category_codes")) p.category_codes = fields.boolean("category_codes");
  if (p.numeric_mean.size() != p.numeric_std.size()) {
    fields.refuse("numeric_mean and numeric_std differ in length");
  }
  if (p.image_mean.size() != p.image_std.size()) {
    fields.refuse("image_mean and image_std differ in length");
  }
  if (!usable(p.numeric_std) || !usable(p.image_std) || !(p.target_std > 0)) {
    fields.refuse("every std must be above 0");
  }
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return p;
}

bool Preprocessing::fits(const DatasetSchema& schema) const {
  const bool image = schema.kind == DatasetSchema::Kind::kImage;
  const int64_t numeric = image ? 0 : schema.numeric_columns();
  const int64_t channels = image ? schema.image[0] : 0;
  return std::ssize(numeric_mean) == numeric && std::ssize(numeric_std) == numeric &&
         std::ssize(image_mean) == channels && std::ssize(image_std) == channels &&
         (context_length > 0) == schema.next_token() &&
         (!category_codes || schema.categorical_columns() > 0);
}

Preprocessing fit_preprocessing(const DatasetSchema& schema, const Partition& partition,
                                std::span<const int64_t> rows,
                                const PreprocessingOptions& options) {
  Preprocessing p;
  if (schema.next_token()) p.context_length = options.context_length;
  p.category_codes = options.category_codes;
  if (options.pixels != nullptr) {
    set_scale(schema, *options.pixels, p);
  } else if (schema.kind == DatasetSchema::Kind::kImage) {
    fit_image(schema, partition, rows, p);
  }
  const int64_t columns = schema.numeric_columns();
  for (int64_t c = 0; c < columns; ++c) {
    const Moments m = fit_moments([&](const auto& add) {
      for (const int64_t row : rows) {
        const float x = partition.numeric[static_cast<size_t>(row * columns + c)];
        if (!std::isnan(x)) add(static_cast<double>(x));
      }
    });
    p.numeric_mean.push_back(m.mean);
    p.numeric_std.push_back(m.std);
  }
  if (schema.target.kind == TargetSchema::Kind::kNumeric) {
    const Moments m = fit_moments([&](const auto& add) {
      for (const int64_t row : rows) {
        add(static_cast<double>(partition.target_numeric[static_cast<size_t>(row)]));
      }
    });
    p.target_mean = m.mean;
    p.target_std = m.std;
  }
  return p;
}

int64_t input_elements(const DatasetSchema& schema, int64_t context_length, bool category_codes) {
  return category_codes ? schema.numeric_columns() + schema.categorical_columns()
                        : schema.interface(context_length).input.elements();
}

RowTransform::RowTransform(const DatasetSchema& schema, const Preprocessing& p)
    : p_(p),
      image_(schema.kind == DatasetSchema::Kind::kImage),
      text_(schema.kind == DatasetSchema::Kind::kText),
      documents_(schema.documents.has_value()),
      offsets_(schema.numeric_offsets()),
      target_offset_(schema.target.offset) {
  TRAINYARD_CHECK(p.fits(schema), "the preprocessing was fitted for another schema");
  input_size_ = input_elements(schema, p.context_length, p.category_codes);
  if (image_) {
    channels_ = schema.image[0];
    pixels_ = schema.image[1] * schema.image[2];
    u8_table_.resize(static_cast<size_t>(channels_));
    for (size_t c = 0; c < u8_table_.size(); ++c) {
      for (size_t x = 0; x < 256; ++x) {
        u8_table_[c][x] = static_cast<float>(
            (static_cast<double>(x) * p.image_scale - p.image_mean[c]) / p.image_std[c]);
      }
    }
    return;
  }
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind == ColumnSchema::Kind::kCategorical) {
      category_count_.push_back(static_cast<int32_t>(column.categories.size()));
    }
  }
}

void RowTransform::apply_tabular(const Partition& partition, int64_t row, float* out) const {
  const size_t columns = p_.numeric_mean.size();
  const float* x = partition.numeric.data() + static_cast<size_t>(row) * columns;
  for (size_t c = 0; c < columns; ++c) {
    const double value = (static_cast<double>(x[c]) - p_.numeric_mean[c]) / p_.numeric_std[c];
    *out++ = std::isnan(x[c]) ? 0.0f : static_cast<float>(value);
  }
  const int32_t* code =
      partition.category.data() + static_cast<size_t>(row) * category_count_.size();
  for (const int32_t count : category_count_) {
    const bool known = *code >= 0 && *code < count;
    if (p_.category_codes) {
      *out++ = known ? static_cast<float>(*code + 1) : 0.0f;
    } else {
      std::fill_n(out, count, 0.0f);
      if (known) out[*code] = 1.0f;
      out += count;
    }
    ++code;
  }
}

void RowTransform::copy_tokens(const Partition& partition, int64_t row, int32_t* out) const {
  const int64_t first = stream() ? row : row * input_size_;
  std::copy_n(partition.tokens.data() + first, input_size_, out);
}

void RowTransform::apply_edited(const Partition& partition, int64_t row, float* out,
                                const ImageEdit& edit) const {
  const std::span<float> image(out, static_cast<size_t>(channels_ * pixels_));
  copy_image(partition, row, image);
  edit(row, image);
  for (int64_t c = 0; c < channels_; ++c) {
    const PixelScale standardize = edited_pixels(c);
    for (int64_t i = 0; i < pixels_; ++i, ++out) *out = standardize(*out);
  }
}

RowTransform::PixelScale RowTransform::edited_pixels(int64_t channel) const {
  const auto c = static_cast<size_t>(channel);
  return {static_cast<float>(p_.image_scale / p_.image_std[c]),
          static_cast<float>(p_.image_mean[c] / p_.image_std[c])};
}

void RowTransform::apply(const Partition& partition, int64_t row, float* out,
                         const ImageEdit& edit) const {
  if (!image_) return apply_tabular(partition, row, out);
  if (edit) return apply_edited(partition, row, out, edit);
  const int64_t start = row * channels_ * pixels_;
  for (int64_t c = 0; c < channels_; ++c) {
    const auto channel = static_cast<size_t>(c);
    if (!partition.image_u8.empty()) {
      const uint8_t* x = partition.image_u8.data() + start + c * pixels_;
      const std::array<float, 256>& table = u8_table_[channel];
      for (int64_t i = 0; i < pixels_; ++i) out[i] = table[x[i]];
    } else {
      const float* x = partition.image_f32.data() + start + c * pixels_;
      const double scale = p_.image_scale;
      const double mean = p_.image_mean[channel];
      const double std = p_.image_std[channel];
      for (int64_t i = 0; i < pixels_; ++i) {
        out[i] = static_cast<float>((static_cast<double>(x[i]) * scale - mean) / std);
      }
    }
    out += pixels_;
  }
}

float RowTransform::standardize_target(float value) const {
  return static_cast<float>((static_cast<double>(value) - p_.target_mean) / p_.target_std);
}
void RowTransform::restore_input(std::span<float> sample) const {
  const auto restore = [](float& x, double mean, double std, double scale) {
    x = static_cast<float>((static_cast<double>(x) * std + mean) / scale);
  };
  if (image_) {
    for (size_t i = 0; i < sample.size(); ++i) {
      const size_t c = i / static_cast<size_t>(pixels_);
      restore(sample[i], p_.image_mean[c], p_.image_std[c], p_.image_scale);
    }
    return;
  }
  for (size_t c = 0; c < p_.numeric_mean.size(); ++c) {
    restore(sample[c], p_.numeric_mean[c] + offsets_[c], p_.numeric_std[c], 1);
  }
}
double RowTransform::restore_target(float value) const {
  return static_cast<double>(value) * p_.target_std + p_.target_mean + target_offset_;
}

void transform_row(const DatasetSchema& schema, const Preprocessing& p, const Partition& partition,
                   int64_t row, float* out) {
  RowTransform(schema, p).apply(partition, row, out);
}

Partition RawRows::view() const {
  Partition p;
  p.rows = rows;
  p.numeric = numeric;
  p.category = category;
  p.image_u8 = image_u8;
  p.image_f32 = image_f32;
  p.tokens = tokens;
  return p;
}

}  // namespace trainyard
