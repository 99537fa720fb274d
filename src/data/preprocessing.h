// src/data/preprocessing.h: converts typed rows to the model's input. It is fitted only on the
// job's training rows (without validation split and test set) and saved with the model.
//
//   numeric      (x - mean) / std of the stored numbers, which are the column's minus its offset
//                (schema.h); missing -> 0 (the mean)
//   categorical  one-hot over the schema's categories; missing or unseen -> all zeros. If the model
//                embeds categories, a code: 1 + the category's index; missing or unseen -> 0
//   text         unchanged tokens: rows truncated or padded at ingest, windows of a stream, or rows
//                of documents
//   image        (x / 255 - mean[c]) / std[c] for U8, (x - mean[c]) / std[c] for F32, with the
//                mean and deviation of the training rows or, for U8, of a fixed scale
//   target       unchanged classes; numeric targets are standardized, predictions are mapped back
//
// A tabular input is the numeric columns, then the one-hot groups or the codes, each in schema
// order.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/dataset.h"
#include "src/data/pixel_scales.h"

namespace trainyard {

struct Preprocessing {
  // One value per numeric column; the std of a constant column is 1.
  std::vector<double> numeric_mean, numeric_std;
  std::vector<double> image_mean, image_std;  // by channel
  double image_scale = 1;                     // 1/255 for U8
  double target_mean = 0, target_std = 1;
  int64_t context_length = 0;   // tokens per sample of a language model
  bool category_codes = false;  // categories of a table are codes instead of one-hot vectors

  bool operator==(const Preprocessing&) const = default;
  /// from_json() reads every number back with the same bits.
  std::string to_json() const;
  /// Refusal: DATASET_INVALID. Sizes are checked against a schema by fits().
  static Result<Preprocessing> from_json(std::string_view text);
  /// Returns false if this was fitted for another schema.
  bool fits(const DatasetSchema& schema) const;
};

/// The requirements of a job's model on its input.
struct PreprocessingOptions {
  int64_t context_length = 0;
  // The scale of pixels, which must be 8-bit; null: that of the training rows.
  const FixedPixelScale* pixels = nullptr;
  bool category_codes = false;
};

/// `rows` are indices into `partition`. Sums are in double precision and in row order, so that the
/// same rows give the same bits.
Preprocessing fit_preprocessing(const DatasetSchema& schema, const Partition& partition,
                                std::span<const int64_t> rows,
                                const PreprocessingOptions& options = {});

/// Returns the number of elements of an input sample.
int64_t input_elements(const DatasetSchema& schema, int64_t context_length, bool category_codes);

/// Changes the image [C, H, W] of a row in place.
using ImageEdit = std::function<void(int64_t row, std::span<float> image)>;

/// A Preprocessing ready to be applied to many rows. Const and thread-safe after construction;
/// borrows nothing.
class RowTransform {
 public:
  /// `p` must fit `schema`; otherwise throws InvariantError.
  RowTransform(const DatasetSchema& schema, const Preprocessing& p);
  /// Returns the number of elements of an input sample.
  int64_t input_size() const { return input_size_; }
  /// Returns true if samples are tokens.
  bool text() const { return text_; }
  /// Returns true if samples are windows of a stream of tokens.
  bool stream() const { return p_.context_length > 0 && !documents_; }
  /// Returns true if samples are rows of documents (src/data/load/packing.h).
  bool documents() const { return documents_; }
  /// For text: copies the input_size() tokens of row `row`, or of a stream those from token `row`
  /// on.
  void copy_tokens(const Partition& partition, int64_t row, int32_t* out) const;
  /// Writes the input_size() floats of row `row` of the partition. `edit` changes an image before
  /// it is standardized; its pixels have the units in which they are stored.
  void apply(const Partition& partition, int64_t row, float* out,
             const ImageEdit& edit = nullptr) const;
  /// Returns the value to which apply() without an edit converts each byte in this channel.
  const std::array<float, 256>& byte_table(int64_t channel) const {
    return u8_table_[static_cast<size_t>(channel)];
  }
  /// Returns the value to which apply() converts a pixel after an edit.
  float standardize_edited(int64_t channel, float pixel) const {
    return edited_pixels(channel)(pixel);
  }
  /// Standardizes a numeric target as it is stored, without its offset.
  float standardize_target(float value) const;
  /// Maps an input sample of input_size() numbers back: pixels and numeric columns to their own
  /// units; values for categories stay unchanged.
  void restore_input(std::span<float> sample) const;
  /// Maps a prediction back to the target's own units.
  double restore_target(float value) const;

 private:
  void apply_tabular(const Partition& partition, int64_t row, float* out) const;
  void apply_edited(const Partition& partition, int64_t row, float* out,
                    const ImageEdit& edit) const;
  /// Standardizes pixels of an edited image. They are no longer whole numbers, so the table of
  /// bytes cannot be used.
  struct PixelScale {
    float scale, shift;
    float operator()(float pixel) const { return pixel * scale - shift; }
  };
  PixelScale edited_pixels(int64_t channel) const;

  Preprocessing p_;
  bool image_ = false;
  bool text_ = false;
  bool documents_ = false;
  int64_t input_size_ = 0;
  int64_t channels_ = 0;
  int64_t pixels_ = 0;           // per channel
  std::vector<double> offsets_;  // of the numeric columns (ColumnSchema::offset)
  double target_offset_ = 0;
  std::vector<std::array<float, 256>> u8_table_;  // by channel: the standardized value of each byte
  std::vector<int32_t> category_count_;           // by categorical column
};

/// Writes row `row` of the partition as a model input. For many rows, keep a RowTransform.
void transform_row(const DatasetSchema& schema, const Preprocessing& p, const Partition& partition,
                   int64_t row, float* out);

/// Rows for predict, parsed from CSV with the schema's feature columns (in any order by header
/// name, or in the schema's order without a header; all other columns are ignored), from IDX
/// images, or from "text" with a row of text on each line. Owns its rows. Refusals as in ingest.
struct RawRows {
  /// A category that does not occur in the training rows. It is treated as missing.
  struct Unseen {
    int64_t row = 0;
    std::string column;
    std::string value;  // its first kUnseenBytesMax bytes
  };
  static constexpr size_t kUnseenMax = 1000;
  static constexpr size_t kUnseenBytesMax = 64;

  std::vector<float> numeric;
  std::vector<int32_t> category;
  std::vector<uint8_t> image_u8;
  std::vector<float> image_f32;
  std::vector<int32_t> tokens;
  int64_t rows = 0;
  std::vector<Unseen> unseen;                // the first kUnseenMax ones
  int64_t unseen_count = 0;                  // number of unseen categories in all rows
  std::vector<std::string> ignored_columns;  // columns that the training data does not have
  Partition view() const;
};
Result<RawRows> parse_raw_rows(const DatasetSchema& schema, std::string_view format,
                               std::string_view bytes);

struct RawImage {
  std::string name;  // for messages
  std::string_view bytes;
};
/// Decodes JPEG or PNG files for predict with a model of byte images, and converts them to its
/// channels and size as the ingest did. If the ingest did not resize, other sizes are refused.
/// Refusals as in ingest; one error lists the first 16 files.
Result<RawRows> parse_raw_images(const DatasetSchema& schema, std::span<const RawImage> images);

}  // namespace trainyard
