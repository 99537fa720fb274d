// src/data/image/damaged_images.h: what happens with the files of a dataset that cannot be read as
// images.
#pragma once

#include <optional>
#include <vector>

#include "src/data/image/image_listing.h"

namespace trainyard {

/// If `skip`, decodes all images and leaves the damaged ones out; refuses data of which more than a
/// tenth is damaged. Otherwise, refuses damaged images if headers reveal one, for which it decodes
/// the other images, too, up to the 16th that is damaged; so that one error names them.
Status judge_damage(std::vector<ImageListing>& listings, bool skip);

/// Returns the refusal of the damaged images, which names the first 16; nullopt if there are none.
std::optional<Error> find_damage(std::vector<ImageListing>& listings);

}  // namespace trainyard
