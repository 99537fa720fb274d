// src/data/typed_rows.h: rows in memory before they are written to the typed file, and the names,
// types and order of the file's arrays, which writer and reader share.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "src/data/preprocessing.h"
#include "src/data/schema.h"

namespace trainyard {

/// The least and the largest of a set of bytes.
struct ByteRange {
  uint8_t low = 255, high = 0;
  void widen(const ByteRange& o) {
    low = std::min(low, o.low);
    high = std::max(high, o.high);
  }
};

struct TypedRows : RawRows {
  std::vector<int64_t> image_sums;
  std::vector<ByteRange> image_ranges;  // one per channel; only for streamed U8 images
  std::vector<int32_t> target_class;
  std::vector<float> target_numeric;
  std::vector<int32_t> group, time;  // only of training rows (Partition)
  std::vector<uint8_t> counted;      // of documents
  std::vector<int64_t> starts;
  Partition view() const;
};

/// Copies the image of a row, out.size() values, in the units in which it is stored.
void copy_image(const Partition& rows, int64_t row, std::span<float> out);

/// Widens the ranges of the channels, [C], to include an image's pixels.
void widen_ranges(std::span<const uint8_t> pixels, std::vector<ByteRange>& ranges);

/// Computes image_sums of U8 images (src/data/dataset.h).
std::vector<int64_t> sum_images(std::span<const uint8_t> pixels, int64_t rows, const Shape& image);

/// Calls visit(name, TensorType, span) for each array of a partition with `p.rows` rows and this
/// schema. The spans are members of `p`, which `visit` may read or set.
template <typename Visit>
void visit_arrays(const DatasetSchema& schema, const std::string& prefix, Partition& p,
                  Visit visit) {
  const int64_t n = p.rows;
  if (n == 0) return;
  if (schema.kind == DatasetSchema::Kind::kImage) {
    const Shape& i = schema.image;
    if (schema.image_dtype == DType::kU8) {
      visit(prefix + ".image_sums", TensorType{{n, i[0], 2}, DType::kI64}, p.image_sums);
      visit(prefix + ".image", TensorType{{n, i[0], i[1], i[2]}, DType::kU8}, p.image_u8);
    } else {
      visit(prefix + ".image", TensorType{{n, i[0], i[1], i[2]}, DType::kF32}, p.image_f32);
    }
  }
  if (schema.documents) {
    const DocumentCounts& documents =
        prefix == "train" ? schema.documents->train : schema.documents->test;
    const Shape tokens{documents.tokens()};
    visit(prefix + ".tokens", TensorType{tokens, DType::kI32}, p.tokens);
    visit(prefix + ".counted", TensorType{tokens, DType::kU8}, p.counted);
    visit(prefix + ".starts", TensorType{{n + 1}, DType::kI64}, p.starts);
    return;
  }
  if (schema.kind == DatasetSchema::Kind::kText) {
    const Shape tokens = schema.stream() ? Shape{n} : Shape{n, schema.text.max_length};
    visit(prefix + ".tokens", TensorType{tokens, DType::kI32}, p.tokens);
    if (schema.stream()) return;
  }
  const int64_t numeric = schema.numeric_columns();
  const int64_t categorical = schema.categorical_columns();
  if (numeric > 0) visit(prefix + ".numeric", TensorType{{n, numeric}, DType::kF32}, p.numeric);
  if (categorical > 0) {
    visit(prefix + ".category", TensorType{{n, categorical}, DType::kI32}, p.category);
  }
  if (schema.target.kind == TargetSchema::Kind::kClass) {
    visit(prefix + ".target", TensorType{{n}, DType::kI32}, p.target_class);
  } else {
    visit(prefix + ".target", TensorType{{n}, DType::kF32}, p.target_numeric);
  }
  if (prefix != "train") return;
  if (!schema.split.group.empty()) visit("train.group", TensorType{{n}, DType::kI32}, p.group);
  if (!schema.split.time.empty()) visit("train.time", TensorType{{n}, DType::kI32}, p.time);
}

}  // namespace trainyard
