// Reads image files as rows for predict, with the decoding and resizing code of training data.
#include "src/base/text.h"
#include "src/data/image/image_file.h"
#include "src/data/image/image_resize.h"
#include "src/data/limits.h"
#include "src/data/preprocessing.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr const char* kImages = "images";

/// Refuses models whose input image files cannot provide: other inputs than images of 8-bit pixels
/// with 1 or 3 channels.
Status check_model(const DatasetSchema& schema) {
  if (schema.kind != DatasetSchema::Kind::kImage) {
    return dataset_error(kImages, std::string("the model was trained on ") +
                                      (schema.kind == DatasetSchema::Kind::kText
                                           ? "text, expected CSV or lines of text"
                                           : "columns, expected CSV"));
  }
  if (schema.image_dtype != DType::kU8 && schema.image_bits == 8) {
    return dataset_error(kImages, "the model was trained on images of floats, expected IDX or CSV");
  }
  if (schema.image[0] != 1 && schema.image[0] != 3) {
    return dataset_error(kImages, "the model was trained on images of " +
                                      std::to_string(schema.image[0]) +
                                      " channels, but image files have 1 or 3");
  }
  return {};
}

/// Places a decoded image and appends its pixels to `out`.
template <typename T, typename Out>
Status add_row(const DatasetSchema& schema, const Result<Pixels<T>>& pixels,
               const std::string& place, std::vector<Out>& out) {
  if (!pixels.ok()) return pixels.error();
  const Shape& shape = schema.image;
  if (schema.resize == ResizeMode::kNone &&
      (pixels->height != shape[1] || pixels->width != shape[2])) {
    return dataset_error(place, "an image of " + std::to_string(pixels->height) + " x " +
                                    std::to_string(pixels->width) + " pixels, expected " +
                                    std::to_string(shape[1]) + " x " + std::to_string(shape[2]) +
                                    " as the model was trained on, without resizing");
  }
  std::vector<T> planes(static_cast<size_t>(shape.elements()));
  place_image(*pixels, shape, schema.resize, planes);
  out.insert(out.end(), planes.begin(), planes.end());
  return {};
}

}  // namespace

Result<RawRows> parse_raw_images(const DatasetSchema& schema, std::span<const RawImage> images) {
  if (Status s = check_model(schema); !s.ok()) return std::move(s).error();
  const Shape& shape = schema.image;
  if (images.empty()) return dataset_error(kImages, "there are no images");
  const int64_t image_bytes = shape.elements() * (schema.image_bits == 16 ? 4 : 1);
  if (std::ssize(images) > static_cast<int64_t>(kRawBytesMax) / image_bytes) {
    return dataset_error(kImages, std::to_string(images.size()) + " images of " +
                                      shape.to_string() + " are more than " +
                                      human_bytes(int64_t{kRawBytesMax}) + "; send fewer");
  }
  RawRows rows;
  Problems problems;
  for (const RawImage& image : images) {
    if (problems.full()) break;
    const std::string place = std::string(kImages) + ": " + quoted_value(image.name);
    const Status added =
        schema.image_bits == 16
            ? add_row(schema, decode_deep_image(image.bytes, place), place, rows.image_f32)
            : add_row(schema, decode_image(image.bytes, shape[0], place), place, rows.image_u8);
    if (!added.ok()) {
      problems.add(added.error());
      continue;
    }
    ++rows.rows;
  }
  if (!problems.empty()) return problems.error();
  return rows;
}

}  // namespace trainyard
