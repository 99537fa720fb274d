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
#include "src/data/files/left_out_files.h"
#include "src/data/image/image_file.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

struct ListedImage : ListedFile {
  ImageInfo info;
  float number = 0;    // the numeric label, if the labels are no classes
  std::string damage;  // why the file cannot be read as an image; empty if it can, as far as known
};

/// The images of a source, in the order of `tree`.
struct ImageListing {
  std::string what;  // "data", "test"
  std::unique_ptr<FileTree> tree;
  std::vector<ListedImage> images;
  bool numeric = false;   // the labels are numbers
  bool has_test = false;  // a folder contains a test set
  LeftOutFiles left_out;

  ListedFiles files();
};

/// Reads the headers of all images of `path`, and sets the damage of those whose header cannot be
/// read. If not `partitioned`, all images are kTrain. Errors: those of open_file_tree(); images
/// outside of classes' folders; labels that do not fit the images.
Result<ImageListing> list_images(const ImagesOptions& options, const std::filesystem::path& path,
                                 const std::string& what, bool partitioned);

}  // namespace trainyard
