// src/data/image/image_listing.h: the images of a folder or an archive, before their pixels are
// read: what each is, which partition it belongs to and what it shows.
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
  float number = 0;  // in place of a class, from the labels
};

/// One source. The images are in the order of `tree`.
struct ImageListing {
  std::string what;  // "data", "test"
  std::unique_ptr<FileTree> tree;
  std::vector<ListedImage> images;
  bool numeric = false;   // the labels are numbers
  bool has_test = false;  // a folder holds a test set
  int64_t skipped = 0;    // files that are not images, or images that belong to no partition
};

/// Reads the headers of all images of `path`. Distinguishes partitions if `partitioned`; otherwise
/// everything is kTrain. Errors: those of open_file_tree() and read_image_info(), the first 16
/// images at once; images in no class's folder; labels that do not fit the images.
Result<ImageListing> list_images(const ImagesOptions& options, const std::filesystem::path& path,
                                 const std::string& what, bool partitioned);

}  // namespace trainyard
