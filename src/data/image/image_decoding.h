// src/data/image/image_decoding.h: decodes all images of listings by several threads.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "src/data/image/image_listing.h"

namespace trainyard {

/// Decodes and uses one image, whose file has the content `bytes`; `place` names it in messages.
/// Refuses a damaged image by DATASET_INVALID, which does not end the pass; other errors do.
/// Called by several threads at once.
using ImageUse = std::function<Status(const ListedImage& image, std::string_view bytes,
                                      const std::string& place)>;

/// Reads the files of all images again that belong to a partition and are not known to be damaged,
/// and calls `use` for each. Sets the damage of those that `use` refuses. Ends once it knows the
/// first `damaged_max` damaged images, and then clears the damage of all later ones, so that the
/// result does not depend on the threads.
Status decode_images(std::vector<ImageListing>& listings, const ImageUse& use, size_t damaged_max);

/// Returns the image's size error if it is not that of `info`, since the file has changed.
Status check_unchanged(int64_t height, int64_t width, const ListedImage& image,
                       const std::string& place);

}  // namespace trainyard
