// Reads a dataset of image files in two passes. The first reads headers to find classes, sizes and
// counts. In the second, several threads decode the pixels and write them to the typed file. Rows
// are in the order of the paths, so that a folder and an archive of it give the same dataset.
#include <algorithm>
#include <map>
#include <optional>

#include "src/base/text.h"
#include "src/data/image/damaged_images.h"
#include "src/data/image/image_decoding.h"
#include "src/data/image/image_listing.h"
#include "src/data/image/image_resize.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/test_share.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using Part = ListedFile::Part;

// --- checks of the options ---------------------------------------------------------------------

Status check_options(const ImagesOptions& o, bool has_test) {
  if (!o.size.empty()) {
    const Shape size(o.size);
    const bool sides = size.rank() == 2 && std::ranges::all_of(o.size, [](int64_t side) {
                         return side >= 1 && side <= kImageSideMax;
                       });
    if (!sides) {
      return dataset_error("images.size", size.to_string() +
                                              ", expected [height, width], each 1 to " +
                                              std::to_string(kImageSideMax));
    }
  }
  const std::optional<ResizeMode> mode = find_resize(o.resize);
  if (!mode || mode == ResizeMode::kNone) {
    return dataset_error("images.resize",
                         quoted_value(o.resize) + ", expected stretch, crop or pad");
  }
  if (o.channels != 0 && o.channels != 1 && o.channels != 3) {
    return dataset_error("images.channels",
                         std::to_string(o.channels) + ", expected 1 (gray) or 3 (color)");
  }
  if (!o.damaged.empty() && o.damaged != "skip") {
    return dataset_error("images.damaged", quoted_value(o.damaged) + ", expected refuse or skip");
  }
  return check_test_share(o.test_share, has_test, "images.test_share");
}

// --- from listings to rows ---------------------------------------------------------------------

/// Returns all images in the order of their paths.
ListedFiles all_images(std::vector<ImageListing>& listings) {
  ListedFiles images;
  for (ImageListing& listing : listings) {
    for (ListedImage& image : listing.images) images.push_back(&image);
  }
  std::ranges::sort(images, {}, &ListedFile::path);
  return images;
}

/// Returns the images of all listings that belong to a partition.
std::vector<const ListedImage*> used_images(const std::vector<ImageListing>& listings) {
  std::vector<const ListedImage*> used;
  for (const ImageListing& listing : listings) {
    for (const ListedImage& image : listing.images) {
      if (image.part != Part::kLeftOut) used.push_back(&image);
    }
  }
  return used;
}

Status set_classes(std::vector<ImageListing>& listings, TargetSchema& target) {
  ASSIGN_OR_RETURN(target.classes,
                   find_classes(files_of(all_images(listings), Part::kTrain), "image"));
  Problems problems;
  for (ImageListing& listing : listings) {
    set_codes(listing.files(), target.classes, listing.what, "image", problems);
  }
  return problems.empty() ? Status() : Status(problems.error());
}

/// Returns the shape [C, H, W] that the options request, or else the common size of all images.
Result<Shape> find_image_shape(const ImagesOptions& options,
                               const std::vector<ImageListing>& listings) {
  struct Seen {
    int64_t count = 0;
    std::string first;
  };
  std::map<std::pair<int64_t, int64_t>, Seen> sizes;
  bool colour = false;
  for (const ImageListing& listing : listings) {
    for (const ListedImage& image : listing.images) {
      if (image.part == Part::kLeftOut) continue;
      colour |= image.info.colour;
      Seen& seen = sizes[{image.info.height, image.info.width}];
      if (seen.count++ == 0) seen.first = place_in_tree(listing.what, image.path);
    }
  }
  const int64_t channels = options.channels != 0 ? options.channels : colour ? 3 : 1;
  if (!options.size.empty()) return Shape{channels, options.size[0], options.size[1]};
  if (sizes.size() == 1) {
    const auto [height, width] = sizes.begin()->first;
    return Shape{channels, height, width};
  }
  std::vector<std::pair<std::pair<int64_t, int64_t>, Seen>> by_count(sizes.begin(), sizes.end());
  std::stable_sort(by_count.begin(), by_count.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  Problems problems;
  for (const auto& [size, seen] : by_count) {
    problems.add(seen.first, std::to_string(size.first) + " x " + std::to_string(size.second) +
                                 " pixels, as " + std::to_string(seen.count) + " of the images; " +
                                 std::to_string(sizes.size()) +
                                 " sizes differ: give images.size: [height, width]");
  }
  return problems.error();
}

void fill_rows(std::vector<ImageListing>& listings, Part part, bool numeric, TypedRows& rows) {
  for (ListedFile* file : files_of(all_images(listings), part)) {
    file->row = rows.rows++;
    if (numeric) {
      rows.target_numeric.push_back(static_cast<const ListedImage*>(file)->number);
    } else {
      rows.target_class.push_back(file->code);
    }
  }
}

// --- the second pass ---------------------------------------------------------------------------

/// The shape of all images, and how those of other sizes are resized to it.
struct Frame {
  Shape image;
  ResizeMode resize;
};

/// Decodes an image with 8 bits per sample, and places it.
Status place_bytes(const ListedImage& image, std::string_view bytes, const std::string& place,
                   const Frame& frame, std::span<uint8_t> out) {
  ASSIGN_OR_RETURN(const ImagePixels pixels, decode_image(bytes, frame.image[0], place));
  if (Status s = check_unchanged(pixels.height, pixels.width, image, place); !s.ok()) return s;
  place_image(pixels, frame.image, frame.resize, out);
  return {};
}

/// Decodes an image with 16 bits per sample, and places it as numbers.
Status place_numbers(const ListedImage& image, std::string_view bytes, const std::string& place,
                     const Frame& frame, std::span<float> out) {
  ASSIGN_OR_RETURN(const DeepPixels pixels, decode_deep_image(bytes, place));
  if (Status s = check_unchanged(pixels.height, pixels.width, image, place); !s.ok()) return s;
  std::vector<uint16_t> planes(out.size());
  place_image(pixels, frame.image, frame.resize, planes);
  std::ranges::copy(planes, out.begin());
  return {};
}

class DecodedImages final : public ImageStream {
 public:
  DecodedImages(std::vector<ImageListing> listings, Frame frame)
      : listings_(std::move(listings)), frame_(std::move(frame)) {}

  Status write(const Sink& sink) override {
    const auto use = [&](const ListedImage& image, std::string_view bytes,
                         const std::string& place) -> Status {
      std::vector<uint8_t> planes(static_cast<size_t>(frame_.image.elements()));
      if (Status s = place_bytes(image, bytes, place, frame_, planes); !s.ok()) return s;
      return sink(image.part == Part::kTest, image.row, planes);
    };
    if (Status s = decode_images(listings_, use, Problems::kCountMax); !s.ok()) return s;
    const std::optional<Error> damage = find_damage(listings_);
    return damage ? Status(*damage) : Status();
  }

 private:
  std::vector<ImageListing> listings_;
  const Frame frame_;
};

/// Fills the pixels of images with 16 bits, which are kept in memory as numbers.
Status fill_numbers(std::vector<ImageListing>& listings, TypedDataset& data) {
  const Frame frame{data.schema.image, data.schema.resize};
  const auto values = static_cast<size_t>(frame.image.elements());
  const int64_t rows = data.train.rows + data.test.rows;
  const auto bytes = static_cast<int64_t>(values * sizeof(float));
  if (Status s = check_memory(rows * bytes, "data"); !s.ok()) return s;
  data.train.image_f32.resize(static_cast<size_t>(data.train.rows) * values);
  data.test.image_f32.resize(static_cast<size_t>(data.test.rows) * values);
  const auto use = [&](const ListedImage& image, std::string_view content,
                       const std::string& place) {
    std::vector<float>& to = (image.part == Part::kTest ? data.test : data.train).image_f32;
    return place_numbers(image, content, place, frame,
                         std::span(to).subspan(static_cast<size_t>(image.row) * values, values));
  };
  if (Status s = decode_images(listings, use, Problems::kCountMax); !s.ok()) return s;
  const std::optional<Error> damage = find_damage(listings);
  return damage ? Status(*damage) : Status();
}

/// Lists the images of both sources, without those that are damaged.
Result<std::vector<ImageListing>> list_sources(const ImagesOptions& options,
                                               const std::filesystem::path& data,
                                               const std::filesystem::path& test) {
  std::vector<ImageListing> listings;
  ASSIGN_OR_RETURN(listings.emplace_back(), list_images(options, data, "data", true));
  if (Status s = check_options(options, !test.empty() || listings[0].has_test); !s.ok()) {
    return std::move(s).error();
  }
  if (!test.empty()) {
    if (listings[0].has_test) {
      return dataset_error(
          "test_path",
          "data already has a test set, in its folder test/, val/ or valid/; remove one");
    }
    ASSIGN_OR_RETURN(listings.emplace_back(), list_images(options, test, "test", false));
    if (listings[1].numeric != listings[0].numeric) {
      return dataset_error("test", "its labels are not of the same kind as the training data's");
    }
    for (ListedImage& image : listings[1].images) {
      if (image.part == Part::kTrain) image.part = Part::kTest;
    }
  }
  if (Status s = judge_damage(listings, options.damaged == "skip"); !s.ok()) {
    return std::move(s).error();
  }
  return listings;
}

/// Says what of the sources is not in the rows as it is there.
void add_warnings(std::vector<ImageListing>& listings, DatasetSchema& schema) {
  for (ImageListing& listing : listings) {
    schema.skipped_files += listing.left_out.count();
    ListedFiles readable = listing.files();
    std::erase_if(readable, [](const ListedFile* file) {
      return !static_cast<const ListedImage*>(file)->damage.empty();
    });
    listing.left_out.add_warnings(readable, "image", schema.warnings);
  }
  add_alike_classes(schema.target.classes, schema.warnings);
  const int64_t reduced = std::ranges::count_if(used_images(listings),
                                                [](const ListedImage* i) { return i->info.deep; });
  if (reduced > 0 && schema.image_bits == 8) {
    schema.warnings.push_back(
        {"DEPTH_REDUCED",
         {},
         reduced,
         std::to_string(reduced) + (reduced == 1 ? " image has" : " images have") +
             " 16 bits per sample and colors, or are among images with colors: only the upper 8 "
             "bits are used. With images.channels: 1, gray images keep their 16 bits."});
  }
}

/// Sets the images' shape, and their type: numbers if an image has gray samples of 16 bits and no
/// image needs colors, else bytes.
Status set_images(const ImagesOptions& options, const std::vector<ImageListing>& listings,
                  DatasetSchema& schema) {
  ASSIGN_OR_RETURN(schema.image, find_image_shape(options, listings));
  if (!options.size.empty()) schema.resize = *find_resize(options.resize);
  if (schema.image.elements() > kImageValuesMax) {
    return dataset_error("data", "images of " + schema.image.to_string() + ", expected at most " +
                                     std::to_string(kImageValuesMax) +
                                     " values; give a smaller images.size");
  }
  const bool deep = std::ranges::any_of(used_images(listings), [](const ListedImage* image) {
    return image->info.deep && !image->info.colour;
  });
  if (!deep || schema.image[0] != 1) return {};
  schema.image_bits = 16;
  schema.image_dtype = DType::kF32;
  return {};
}

}  // namespace

Result<TypedDataset> read_images_dataset(const ImagesOptions& options,
                                         const std::filesystem::path& data,
                                         const std::filesystem::path& test) {
  if (Status s = check_options(options, !test.empty()); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(std::vector<ImageListing> listings, list_sources(options, data, test));
  if (options.test_share > 0) {
    draw_test_files(all_images(listings), options.test_share, options.seed);
  }
  TypedDataset result;
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kImage;
  const bool numeric = listings[0].numeric;
  schema.target.name = numeric ? "number" : "class";
  if (files_of(all_images(listings), Part::kTrain).empty()) {
    return dataset_error("data", "there are no training images");
  }
  if (numeric) {
    schema.target.kind = TargetSchema::Kind::kNumeric;
  } else if (Status s = set_classes(listings, schema.target); !s.ok()) {
    return std::move(s).error();
  }
  if (Status s = set_images(options, listings, schema); !s.ok()) return std::move(s).error();
  add_warnings(listings, schema);
  fill_rows(listings, Part::kTrain, numeric, result.train);
  if (Status s = check_numbers_differ(result.train.target_numeric, "data"); !s.ok()) {
    return std::move(s).error();
  }
  fill_rows(listings, Part::kTest, numeric, result.test);
  schema.train_rows = result.train.rows;
  schema.test_rows = result.test.rows;
  if (schema.image_bits == 16) {
    if (Status s = fill_numbers(listings, result); !s.ok()) return std::move(s).error();
  } else {
    result.images =
        std::make_unique<DecodedImages>(std::move(listings), Frame{schema.image, schema.resize});
  }
  return result;
}

}  // namespace trainyard
