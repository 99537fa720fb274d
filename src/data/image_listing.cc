#include "src/data/image_listing.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "src/base/folder_files.h"
#include "src/base/text.h"
#include "src/data/byte_source.h"
#include "src/data/csv_cell.h"
#include "src/data/csv_columns.h"
#include "src/data/csv_reader.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

using Part = ListedImage::Part;
constexpr size_t kHeaderBytes = size_t{256} << 10;  // read of a file before its pixels are needed
// Images that nobody means to leave out, and that are not read.
constexpr std::array<std::string_view, 12> kOtherEndings = {".gif",  ".bmp",  ".webp", ".tif",
                                                            ".tiff", ".ppm",  ".pgm",  ".jp2",
                                                            ".heic", ".avif", ".jxl",  ".jfif"};
constexpr std::array<std::string_view, 3> kTestFolders = {"test", "val", "valid"};

std::string_view first_part(std::string_view path) { return path.substr(0, path.find('/')); }

/// The path below its first folder; nothing if it is a file there.
std::optional<std::string_view> below_first(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return path.substr(slash + 1);
}

struct Labels {
  std::string path;  // of the CSV in the source
  std::string content;
};

/// The header of the image that the tree stands at, with no more of the file than it takes.
Result<ImageInfo> read_header(FileTree& tree, const std::string& place) {
  std::string bytes;
  ASSIGN_OR_RETURN(const bool more, tree.read(bytes, kHeaderBytes));
  Result<ImageInfo> info = read_image_info(bytes, place);
  if (info.ok() || !more) return info;
  ASSIGN_OR_RETURN(const bool still_more, tree.read(bytes, kImageFileBytesMax));
  if (still_more) {
    return dataset_error(
        place, "larger than the accepted " + human_bytes(static_cast<int64_t>(kImageFileBytesMax)));
  }
  return read_image_info(bytes, place);
}

/// Every image of the tree, and the labels if they are asked for.
Status scan(const ImagesOptions& options, ImageListing& listing, std::optional<Labels>& labels) {
  Problems problems;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, listing.tree->next());
    if (!more || problems.full()) break;
    const std::string& path = listing.tree->path();
    const std::string place = place_in_tree(listing.what, path);
    if (is_image_path(path)) {
      const Result<ImageInfo> info = read_header(*listing.tree, place);
      if (!info.ok() && info.error().reason != "DATASET_INVALID") return info.error();
      if (!info.ok()) problems.add(info.error());
      listing.images.push_back(
          {path, info.ok() ? *info : ImageInfo{}, Part::kTrain, {}, 0, -1, -1});
    } else if (!options.labels.empty() &&
               (path == options.labels || below_first(path) == options.labels)) {
      if (labels) return dataset_error(place, "the labels are there twice");
      ASSIGN_OR_RETURN(std::string content, read_tree_file(*listing.tree, kLabelsBytesMax, place));
      labels = Labels{path, std::move(content)};
    } else if (has_ending(path, kOtherEndings)) {
      problems.add(place, "an image of a format that is not read, expected JPEG or PNG");
    } else {
      ++listing.skipped;
    }
  }
  if (!problems.empty()) return problems.error();
  if (!options.labels.empty() && !labels) {
    return dataset_error("images.labels",
                         quoted_value(options.labels) + " is not in " + listing.what);
  }
  if (listing.images.empty()) {
    return dataset_error(listing.what, "there are no JPEG or PNG files (.jpg, .jpeg, .png)");
  }
  std::vector<const std::string*> paths;
  for (const ListedImage& image : listing.images) paths.push_back(&image.path);
  const auto less = [](const std::string* a, const std::string* b) { return *a < *b; };
  std::sort(paths.begin(), paths.end(), less);
  const auto twice =
      std::adjacent_find(paths.begin(), paths.end(), [](auto* a, auto* b) { return *a == *b; });
  if (twice == paths.end()) return {};
  return field_error("ARCHIVE_UNSAFE", place_in_tree(listing.what, **twice),
                     "the archive holds this path twice");
}

/// Bytes of a folder around everything, as archives often have it: "photos/" of
/// "photos/cats/1.jpg". Below it there are folders still, or the labels.
size_t root_of(const ImageListing& listing, const std::optional<Labels>& labels, bool partitioned) {
  const std::string_view root = first_part(listing.images.front().path);
  if (partitioned && root == "train") return 0;
  for (const ListedImage& image : listing.images) {
    const std::optional<std::string_view> rest = below_first(image.path);
    if (!rest || first_part(image.path) != root || (!labels && !below_first(*rest))) return 0;
  }
  if (labels && (first_part(labels->path) != root || !below_first(labels->path))) return 0;
  return root.size() + 1;
}

/// Sets `part` and takes the partition's folder off each path. Paths are without the root.
Status split_parts(ImageListing& listing, std::vector<std::string_view>& paths) {
  const auto below = [&](std::string_view folder) {
    return std::any_of(paths.begin(), paths.end(), [&](std::string_view path) {
      return below_first(path) && first_part(path) == folder;
    });
  };
  if (!below("train")) return {};
  const auto test = std::find_if(kTestFolders.begin(), kTestFolders.end(), below);
  listing.has_test = test != kTestFolders.end();
  Problems problems;
  for (size_t i = 0; i < paths.size(); ++i) {
    ListedImage& image = listing.images[i];
    const std::string_view folder = first_part(paths[i]);
    const bool known =
        std::find(kTestFolders.begin(), kTestFolders.end(), folder) != kTestFolders.end();
    if (!below_first(paths[i]) || (folder != "train" && !known)) {
      problems.add(place_in_tree(listing.what, image.path),
                   "lies beside train/, expected it in train/ or test/ (or val/, valid/)");
      continue;
    }
    if (folder != "train") image.part = folder == *test ? Part::kTest : Part::kLeftOut;
    if (image.part == Part::kLeftOut) ++listing.skipped;
    paths[i] = *below_first(paths[i]);
  }
  return problems.empty() ? Status() : Status(problems.error());
}

void check_class(std::string_view name, const std::string& place, Problems& problems) {
  if (!is_utf8(name)) {
    problems.add(place, "the class " + quoted_value(name) + " is not UTF-8");
  } else if (name.empty() || name.size() > kNameBytesMax) {
    problems.add(place, "a class's name of " + std::to_string(name.size()) +
                            " bytes, expected 1 to " + std::to_string(kNameBytesMax));
  }
}

Status label_by_folder(ImageListing& listing, const std::vector<std::string_view>& paths) {
  Problems problems;
  for (size_t i = 0; i < paths.size(); ++i) {
    ListedImage& image = listing.images[i];
    if (image.part == Part::kLeftOut) continue;
    const std::string place = place_in_tree(listing.what, image.path);
    if (!below_first(paths[i])) {
      problems.add(place,
                   "lies in no class's folder; name a CSV of labels in images.labels if "
                   "classes are not folders");
      continue;
    }
    image.label = first_part(paths[i]);
    check_class(image.label, place, problems);
  }
  return problems.empty() ? Status() : Status(problems.error());
}

/// Where the columns of the labels are.
struct LabelColumns {
  size_t file = 0;
  size_t label = 0;
  bool numeric = false;
};

Result<LabelColumns> find_columns(const std::vector<std::string>& names, const std::string& what) {
  const auto find = [&](const char* name) -> std::optional<size_t> {
    const auto it = std::find(names.begin(), names.end(), name);
    return it == names.end() ? std::nullopt : std::optional<size_t>(it - names.begin());
  };
  const std::optional<size_t> file = find("file");
  const std::optional<size_t> by_class = find("class");
  const std::optional<size_t> by_number = find("number");
  if (!file || by_class.has_value() == by_number.has_value()) {
    return dataset_error(what, "its header must name a column `file`, and `class` or `number`");
  }
  return LabelColumns{*file, by_class ? *by_class : *by_number, by_number.has_value()};
}

/// The images by what the CSV calls them: paths from its own folder on.
std::map<std::string_view, size_t> images_below(const ImageListing& listing,
                                                std::string_view folder) {
  std::map<std::string_view, size_t> images;
  for (size_t i = 0; i < listing.images.size(); ++i) {
    std::string_view path = listing.images[i].path;
    if (!path.starts_with(folder)) continue;
    images.emplace(path.substr(folder.size()), i);
  }
  return images;
}

Status label_by_csv(ImageListing& listing, const Labels& labels) {
  const std::string what = place_in_tree(listing.what, labels.path);
  const std::string folder = labels.path.substr(0, labels.path.rfind('/') + 1);  // "" at the top
  const std::map<std::string_view, size_t> images = images_below(listing, folder);
  const std::unique_ptr<ByteSource> source = open_memory_source(labels.content, what);
  CsvReader reader(*source, ',', what);
  std::vector<std::string_view> fields;
  ASSIGN_OR_RETURN(bool more, reader.next(fields));
  if (!more) return dataset_error(what, "there are no labels");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, header_names(fields, what));
  ASSIGN_OR_RETURN(const LabelColumns columns, find_columns(names, what));
  listing.numeric = columns.numeric;
  const CellReader cells({});
  std::vector<bool> labelled(listing.images.size());
  Problems problems;
  int64_t row = 0;
  while (!problems.full()) {
    ASSIGN_OR_RETURN(more, reader.next(fields));
    if (!more) break;
    const std::string place = place_of(what, ++row, reader.line());
    if (fields.size() != names.size()) {
      problems.add(place, std::to_string(fields.size()) + " fields, expected " +
                              std::to_string(names.size()) + " as in the header");
      continue;
    }
    const auto found = images.find(fields[columns.file]);
    if (found == images.end()) {
      problems.add(place, "there is no image " + quoted_value(fields[columns.file]));
      continue;
    }
    if (labelled[found->second]) {
      problems.add(place,
                   "the image " + quoted_value(fields[columns.file]) + " has a label already");
      continue;
    }
    labelled[found->second] = true;
    ListedImage& image = listing.images[found->second];
    const std::string_view label = fields[columns.label];
    if (columns.numeric) {
      const Cell cell = cells.read(label);
      if (cell.kind != Cell::Kind::kNumber) {
        problems.add(place, quoted_value(label) + " is not a number");
      }
      image.number = static_cast<float>(cell.value);
    } else {
      image.label = label;
      check_class(label, place, problems);
    }
  }
  if (!problems.empty()) return problems.error();
  for (size_t i = 0; i < listing.images.size(); ++i) {
    if (labelled[i] || listing.images[i].part == Part::kLeftOut) continue;
    listing.images[i].part = Part::kLeftOut;
    ++listing.skipped;
  }
  return {};
}

}  // namespace

Result<ImageListing> list_images(const ImagesOptions& options, const std::filesystem::path& path,
                                 const std::string& what, bool partitioned) {
  ImageListing listing;
  listing.what = what;
  ASSIGN_OR_RETURN(listing.tree, open_file_tree(path, what));
  std::optional<Labels> labels;
  if (Status s = scan(options, listing, labels); !s.ok()) return std::move(s).error();
  const size_t root = root_of(listing, labels, partitioned);
  std::vector<std::string_view> paths;
  for (const ListedImage& image : listing.images) {
    paths.push_back(std::string_view(image.path).substr(root));
  }
  if (partitioned) {
    if (Status s = split_parts(listing, paths); !s.ok()) return std::move(s).error();
  }
  Status labelled = labels ? label_by_csv(listing, *labels) : label_by_folder(listing, paths);
  if (!labelled.ok()) return std::move(labelled).error();
  return listing;
}

}  // namespace trainyard
