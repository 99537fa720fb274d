// src/data/preprocessing.h: from raw typed rows to the model's input. Fitted only on one job's
// training rows (without the validation split and the test set), saved with its model.
//
//   numeric      (x - mean) / std; missing -> 0 (the mean)
//   categorical  one-hot over the schema's categories; missing or unseen -> all zeros. Or, where
//                the model embeds them, a code: 1 + the category's index; missing or unseen -> 0
//   text         tokens as they are: rows cut and padded at ingest, or windows of a stream
//   image        (x / 255 - mean[c]) / std[c] for U8, (x - mean[c]) / std[c] for F32; x / 255
//                where the pixels are to be shares in [0, 1]
//   target       classes as they are; numeric targets are standardized, predictions are mapped back
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

namespace trainyard {

struct Preprocessing {
  std::vector<double> numeric_mean,
      numeric_std;  // by numeric column; std is 1 where a column is constant
  std::vector<double> image_mean, image_std;  // by channel
  double image_scale = 1;                     // 1/255 for U8
  double target_mean = 0, target_std = 1;
  int64_t context_length = 0;   // tokens of one sample of a stream
  bool category_codes = false;  // of a table; else one-hot

  bool operator==(const Preprocessing&) const = default;
  /// Every number comes back from from_json() as it was, to the bit.
  std::string to_json() const;
  /// Refusal: DATASET_INVALID. Sizes are checked against a schema by fits().
  static Result<Preprocessing> from_json(std::string_view text);
  /// False if this was fitted for another schema.
  bool fits(const DatasetSchema& schema) const;
};

/// What a job's model asks of its input.
struct PreprocessingOptions {
  int64_t context_length = 0;
  bool unit_pixels = false;  // pixels, which must be 8-bit, become shares in [0, 1] and are not
                             // standardized
  bool category_codes = false;
};

/// `rows` are indices into `partition`. Sums run in row order in double: same rows, same bits.
Preprocessing fit_preprocessing(const DatasetSchema& schema, const Partition& partition,
                                std::span<const int64_t> rows,
                                const PreprocessingOptions& options = {});

/// Elements of one input sample.
int64_t input_elements(const DatasetSchema& schema, int64_t context_length, bool category_codes);

/// Called with a row and its image [C, H, W].
using ImageEdit = std::function<void(int64_t row, std::span<float> image)>;

/// A Preprocessing ready to be applied to many rows. Const and thread-safe after construction;
/// borrows nothing.
class RowTransform {
 public:
  /// A fault if `p` does not fit `schema`.
  RowTransform(const DatasetSchema& schema, const Preprocessing& p);
  /// Elements of one input sample.
  int64_t input_size() const { return input_size_; }
  /// True if samples are tokens; and if they are windows of a stream.
  bool text() const { return text_; }
  bool stream() const { return p_.context_length > 0; }
  /// Text: the input_size() tokens of row `row`, or those of a stream from token `row` on.
  void copy_tokens(const Partition& partition, int64_t row, int32_t* out) const;
  /// Writes row `row` of the partition: input_size() floats. `edit` changes an image before it is
  /// standardized, in the units in which it is stored.
  void apply(const Partition& partition, int64_t row, float* out,
             const ImageEdit& edit = nullptr) const;
  /// What apply() makes of each byte in this channel; of one in an image that is edited too, and of
  /// a pixel that the edit made.
  const std::array<float, 256>& byte_table(int64_t channel) const {
    return u8_table_[static_cast<size_t>(channel)];
  }
  float standardize_edited(int64_t channel, float pixel) const {
    return edited_pixels(channel)(pixel);
  }
  /// A numeric target, standardized; and a prediction mapped back to the target's own units.
  float standardize_target(float value) const;
  /// An input sample, input_size() numbers, mapped back: pixels and numeric columns in their own
  /// units; values for categories unchanged.
  void restore_input(std::span<float> sample) const;
  double restore_target(float value) const;

 private:
  void apply_tabular(const Partition& partition, int64_t row, float* out) const;
  void apply_edited(const Partition& partition, int64_t row, float* out,
                    const ImageEdit& edit) const;
  /// An edited image's pixels are whole numbers no more: computed, not looked up.
  struct PixelScale {
    float scale, shift;
    float operator()(float pixel) const { return pixel * scale - shift; }
  };
  PixelScale edited_pixels(int64_t channel) const;

  Preprocessing p_;
  bool image_ = false;
  bool text_ = false;
  int64_t input_size_ = 0;
  int64_t channels_ = 0;
  int64_t pixels_ = 0;                            // per channel
  std::vector<std::array<float, 256>> u8_table_;  // by channel: the result for each byte
  std::vector<int32_t> category_count_;           // by categorical column
};

/// Writes row `row` of the partition as a model input. For many rows, keep a RowTransform.
void transform_row(const DatasetSchema& schema, const Preprocessing& p, const Partition& partition,
                   int64_t row, float* out);

/// Raw rows for predict: CSV with the schema's feature columns (by header name, any order; without
/// a header, in the schema's order; a target column may be present and is ignored), IDX images, or
/// "text": a row of text on each line. Owns its rows. Refusals as in ingest.
struct RawRows {
  /// A category that training never saw, which counts as missing.
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
  std::vector<Unseen> unseen;  // the first kUnseenMax
  int64_t unseen_count = 0;    // of all rows
  Partition view() const;
};
Result<RawRows> parse_raw_rows(const DatasetSchema& schema, std::string_view format,
                               std::string_view bytes);

/// Image files to predict, JPEG or PNG, for a model of byte images: brought to its channels and
/// size as the ingest did. Where the ingest resized nothing, other sizes are refused. Refusals as
/// in ingest, the first 16 files at once.
struct RawImage {
  std::string name;  // for messages
  std::string_view bytes;
};
Result<RawRows> parse_raw_images(const DatasetSchema& schema, std::span<const RawImage> images);

}  // namespace trainyard
