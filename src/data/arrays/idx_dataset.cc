// Reads a dataset of IDX files: images and labels, and optionally those of a test set.
#include <algorithm>

#include "src/data/arrays/idx.h"
#include "src/data/files/byte_source.h"
#include "src/data/problems.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

struct IdxPart {
  Shape image;
  DType dtype = DType::kU8;
};

/// Reads the images and labels of a partition into `rows`.
Result<IdxPart> read_part(const std::filesystem::path& images_path,
                          const std::filesystem::path& labels_path, const std::string& prefix,
                          TypedRows& rows) {
  const std::string images_what = prefix + "_images";
  const std::string labels_what = prefix + "_labels";
  // The small labels are read first, so that their errors are found before the images are read.
  ASSIGN_OR_RETURN(const auto labels_source, open_file_source(labels_path, labels_what));
  ASSIGN_OR_RETURN(rows.target_class, read_idx_labels(*labels_source, labels_what));
  ASSIGN_OR_RETURN(const auto images_source, open_file_source(images_path, images_what));
  if (!images_source->compressed()) {
    if (Status s = check_memory(images_source->bytes_max(), images_what); !s.ok()) {
      return std::move(s).error();
    }
  }
  ASSIGN_OR_RETURN(IdxImages images, read_idx_images(*images_source, images_what, INT64_MAX));
  if (images.rows != std::ssize(rows.target_class)) {
    return dataset_error(labels_what, std::to_string(rows.target_class.size()) +
                                          " labels, expected " + std::to_string(images.rows) +
                                          " as there are images");
  }
  rows.rows = images.rows;
  rows.image_u8 = std::move(images.u8);
  rows.image_f32 = std::move(images.f32);
  if (images.dtype == DType::kU8) {
    rows.image_sums = sum_images(rows.image_u8, rows.rows, images.image);
  }
  return IdxPart{images.image, images.dtype};
}

}  // namespace

Result<TypedDataset> read_idx_dataset(const IdxPaths& paths) {
  TypedDataset result;
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kImage;
  ASSIGN_OR_RETURN(const IdxPart train,
                   read_part(paths.train_images, paths.train_labels, "train", result.train));
  schema.image = train.image;
  schema.image_dtype = train.dtype;
  schema.train_rows = result.train.rows;
  schema.target.name = "label";
  const auto [low, high] =
      std::minmax_element(result.train.target_class.begin(), result.train.target_class.end());
  if (*low == *high) {
    return dataset_error("train_labels", "every label is " + std::to_string(*low) +
                                             ", expected at least 2 different ones");
  }
  for (int32_t label = 0; label <= *high; ++label) {  // also labels that do not occur
    schema.target.classes.push_back(std::to_string(label));
  }
  if (paths.test_images.empty()) return result;

  ASSIGN_OR_RETURN(const IdxPart test,
                   read_part(paths.test_images, paths.test_labels, "test", result.test));
  if (test.image != train.image || test.dtype != train.dtype) {
    return dataset_error("test_images", std::string(name_of(test.dtype)) + " images of " +
                                            test.image.to_string() + ", expected " +
                                            std::string(name_of(train.dtype)) + " of " +
                                            train.image.to_string() + " as in the training data");
  }
  schema.test_rows = result.test.rows;
  Problems problems;
  for (size_t i = 0; i < result.test.target_class.size() && !problems.full(); ++i) {
    const int32_t label = result.test.target_class[i];
    if (label <= *high) continue;
    problems.add("test_labels: row " + std::to_string(i + 1),
                 "label " + std::to_string(label) +
                     " is out of range, the training labels are 0 to " + std::to_string(*high));
  }
  if (!problems.empty()) return problems.error();
  return result;
}

}  // namespace trainyard
