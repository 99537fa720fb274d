// src/data/image/image_listing.h: lists the images of a folder or an archive with their header,
// partition and label, before their pixels are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/files/class_folders.h"
#include "src/data/files/file_tree.h"
#include "src/data/image/image_file.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

struct ListedImage : ListedFile {
  ImageInfo info;
  float number = 0;  // the numeric label, if the labels are no classes
};

/// The images of a source, in the order of `tree`.
struct ImageListing {
  std::string what;  // "data", "test"
  std::unique_ptr<FileTree> tree;
  std::vector<ListedImage> images;
  bool numeric = false;   // the labels are numbers
  bool has_test = false;  // a folder contains a test set
  int64_t skipped = 0;    // files that are not images, or images that belong to no partition
};

/// Reads the headers of all images of `path`. If not `partitioned`, all images are kTrain. Errors:
/// those of open_file_tree(); those of read_image_info(), for the first 16 images together; images
/// outside of classes' folders; labels that do not fit the images.
Result<ImageListing> list_images(const ImagesOptions& options, const std::filesystem::path& path,
                                 const std::string& what, bool partitioned);

}  // namespace trainyard
