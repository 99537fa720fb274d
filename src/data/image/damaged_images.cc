#include "src/data/image/damaged_images.h"

#include <algorithm>

#include "src/data/image/image_decoding.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr int64_t kSkippedOf = 10;  // one image of so many may be skipped; more is another mistake

struct Damaged {
  ImageListing* listing;
  ListedImage* image;

  std::string place() const { return place_in_tree(listing->what, image->path); }
};

/// Returns the damaged images that belong to a partition, by listing and path.
std::vector<Damaged> damaged_images(std::vector<ImageListing>& listings) {
  std::vector<Damaged> damaged;
  for (ImageListing& listing : listings) {
    const auto begin = std::ssize(damaged);
    for (ListedImage& image : listing.images) {
      if (image.part == ListedFile::Part::kLeftOut || image.damage.empty()) continue;
      damaged.push_back({&listing, &image});
    }
    std::sort(damaged.begin() + begin, damaged.end(),
              [](const Damaged& a, const Damaged& b) { return a.image->path < b.image->path; });
  }
  return damaged;
}

int64_t count_images(const std::vector<ImageListing>& listings) {
  int64_t count = 0;
  for (const ImageListing& listing : listings) count += std::ssize(listing.images);
  return count;
}

/// Returns the refusal of these images. `after` ends its message. Reading stops at `count_max`
/// damaged images, so that there may be more.
Error refusal(const std::vector<Damaged>& damaged, size_t count_max, const std::string& after) {
  Problems problems;
  for (const Damaged& d : damaged) problems.add(d.place(), d.image->damage);
  Error error = problems.error();
  const FieldViolation& first = error.violations.front();
  error.message = first.field + ": " + first.description;
  if (damaged.size() > 1) {
    error.message += std::string(" (the first of ") +
                     (damaged.size() >= count_max ? "at least " : "") +
                     std::to_string(damaged.size()) + " damaged images)";
  }
  error.message += after;
  return error;
}

/// Decodes all images, and drops the pixels.
Status decode_all(std::vector<ImageListing>& listings, size_t damaged_max) {
  const auto use = [](const ListedImage&, std::string_view bytes, const std::string& place) {
    const Result<ImagePixels> pixels = decode_image(bytes, 1, place);
    return pixels.ok() ? Status() : Status(pixels.error());
  };
  return decode_images(listings, use, damaged_max);
}

}  // namespace

std::optional<Error> find_damage(std::vector<ImageListing>& listings) {
  const std::vector<Damaged> damaged = damaged_images(listings);
  if (damaged.empty()) return std::nullopt;
  const bool one = damaged.size() == 1;
  return refusal(damaged, Problems::kCountMax,
                 one ? "; replace or remove it, or leave it out with images.damaged: skip"
                     : "; replace or remove them, or leave them out with "
                       "images.damaged: skip");
}

Status judge_damage(std::vector<ImageListing>& listings, bool skip) {
  if (!skip && damaged_images(listings).empty()) return {};
  const int64_t count = count_images(listings);
  const auto too_many = static_cast<size_t>(std::max<int64_t>(1, count / kSkippedOf) + 1);
  if (Status s = decode_all(listings, skip ? too_many : Problems::kCountMax); !s.ok()) return s;
  if (!skip) return *find_damage(listings);
  const std::vector<Damaged> damaged = damaged_images(listings);
  if (damaged.size() >= too_many) {
    return refusal(damaged, too_many,
                   "; of " + std::to_string(count) +
                       " images, images.damaged: skip leaves out at most one in " +
                       std::to_string(kSkippedOf));
  }
  for (const Damaged& d : damaged) {
    d.image->part = ListedFile::Part::kLeftOut;
    d.listing->left_out.add("damaged", d.image->path, d.image->damage);
  }
  return {};
}

}  // namespace trainyard
