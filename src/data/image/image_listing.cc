#include "src/data/image/image_listing.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "src/base/folder_files.h"
#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_reader.h"

namespace trainyard {
namespace {

using Part = ListedFile::Part;
constexpr size_t kHeaderBytes = size_t{256} << 10;  // first part of a file that is read for headers
// Images in unsupported formats, which are refused rather than skipped.
constexpr std::array<std::string_view, 12> kOtherEndings = {".gif",  ".bmp",  ".webp", ".tif",
                                                            ".tiff", ".ppm",  ".pgm",  ".jp2",
                                                            ".heic", ".avif", ".jxl",  ".jfif"};

struct Labels {
  std::string path;  // the CSV's path in the source
  std::string content;
};

/// Sets info or damage of the tree's current image. Reads the first kHeaderBytes bytes of the file,
/// and the rest only if the header is longer.
Status read_header(FileTree& tree, ListedImage& image) {
  std::string bytes;
  ASSIGN_OR_RETURN(const bool more, tree.read(bytes, kHeaderBytes));
  Result<ImageInfo> info = read_image_info(bytes, image.path);
  if (!info.ok() && more) {
    ASSIGN_OR_RETURN(const bool still_more, tree.read(bytes, kImageFileBytesMax));
    info = still_more ? dataset_error(image.path,
                                      "larger than the accepted " +
                                          human_bytes(static_cast<int64_t>(kImageFileBytesMax)))
                      : read_image_info(bytes, image.path);
  }
  if (info.ok()) {
    image.info = *info;
  } else {
    image.damage = info.error().violations.at(0).description;
  }
  return {};
}

/// Returns whether the path is that of the file of labels, in the tree or below its first folder.
bool is_labels_path(const std::string& path, const std::string& labels) {
  if (labels.empty()) return false;
  const std::string wanted = nfc(labels);
  return nfc(path) == wanted || nfc(below_first(path)) == wanted;
}

/// Lists all images of the tree, and reads the file of labels if the options name one.
Status scan(const ImagesOptions& options, ImageListing& listing, std::optional<Labels>& labels) {
  Problems problems;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, listing.tree->next());
    if (!more || problems.full()) break;
    const std::string& path = listing.tree->path();
    const std::string place = place_in_tree(listing.what, path);
    if (is_image_path(path)) {
      ListedImage& image = listing.images.emplace_back();
      image.path = path;
      if (Status s = read_header(*listing.tree, image); !s.ok()) return s;
    } else if (is_labels_path(path, options.labels)) {
      if (labels) return dataset_error(place, "the labels file appears twice");
      ASSIGN_OR_RETURN(std::string content, read_tree_file(*listing.tree, kLabelsBytesMax, place));
      labels = Labels{path, std::move(content)};
    } else if (has_ending(path, kOtherEndings)) {
      problems.add(place, "an image in an unsupported format, expected JPEG or PNG");
    } else {
      listing.left_out.add("not a JPEG or PNG image", path);
    }
  }
  if (!problems.empty()) return problems.error();
  listing.left_out.add_empty_folders(listing.tree->empty_folders());
  if (!options.labels.empty() && !labels) {
    return dataset_error("images.labels",
                         quoted_value(options.labels) + " is not in " + listing.what);
  }
  if (listing.images.empty()) {
    return dataset_error(listing.what, "there are no JPEG or PNG files (.jpg, .jpeg, .png)");
  }
  return check_paths(listing.files(), listing.what);
}

/// The indices of the columns in the CSV of labels.
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

/// Returns the indices of the images by their paths in NFC relative to the CSV's folder, by which
/// the CSV names them.
std::map<std::string, size_t> images_below(const ImageListing& listing, std::string_view folder) {
  std::map<std::string, size_t> images;
  for (size_t i = 0; i < listing.images.size(); ++i) {
    std::string_view path = listing.images[i].path;
    if (!path.starts_with(folder)) continue;
    images.emplace(nfc(path.substr(folder.size())), i);
  }
  return images;
}

Status label_by_csv(ImageListing& listing, const Labels& labels) {
  const std::string what = place_in_tree(listing.what, labels.path);
  // The folder of the CSV; empty if the CSV is at the top level.
  const std::string folder = labels.path.substr(0, labels.path.rfind('/') + 1);
  const std::map<std::string, size_t> images = images_below(listing, folder);
  const std::unique_ptr<ByteSource> source = open_memory_source(labels.content, what);
  CsvReader reader(*source, ',', what);
  std::vector<std::string_view> fields;
  ASSIGN_OR_RETURN(bool more, reader.next(fields));
  if (!more) return dataset_error(what, "there are no labels");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, header_names(fields, what));
  ASSIGN_OR_RETURN(const LabelColumns columns, find_columns(names, what));
  listing.numeric = columns.numeric;
  const CellReader cells;
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
    const auto found = images.find(nfc(fields[columns.file]));
    if (found == images.end()) {
      problems.add(place, "there is no image " + quoted_value(fields[columns.file]));
      continue;
    }
    if (labelled[found->second]) {
      problems.add(place,
                   "the image " + quoted_value(fields[columns.file]) + " already has a label");
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
      image.label = nfc(label);
      check_class(label, place, problems);
    }
  }
  if (!problems.empty()) return problems.error();
  for (size_t i = 0; i < listing.images.size(); ++i) {
    if (labelled[i] || listing.images[i].part == Part::kLeftOut) continue;
    listing.images[i].part = Part::kLeftOut;
    listing.left_out.add("not listed in " + labels.path, listing.images[i].path);
  }
  return {};
}

}  // namespace

ListedFiles ImageListing::files() {
  ListedFiles pointers;
  for (ListedImage& image : images) pointers.push_back(&image);
  return pointers;
}

Result<ImageListing> list_images(const ImagesOptions& options, const std::filesystem::path& path,
                                 const std::string& what, bool partitioned) {
  ImageListing listing;
  listing.what = what;
  ASSIGN_OR_RETURN(listing.tree, open_file_tree(path, what));
  std::optional<Labels> labels;
  if (Status s = scan(options, listing, labels); !s.ok()) return std::move(s).error();
  const ListedFiles files = listing.files();
  size_t root = root_of(files, partitioned, /*in_folders=*/!labels);
  if (labels && !labels->path.starts_with(listing.images.front().path.substr(0, root))) root = 0;
  listing.left_out.set_root(files.front()->path.substr(0, root));
  ShortPaths paths;
  for (const ListedFile* file : files) paths.push_back(std::string_view(file->path).substr(root));
  if (partitioned) {
    ASSIGN_OR_RETURN(const Parts parts, split_parts(files, paths, what));
    listing.has_test = parts.has_test;
    add_left_out_part(files, listing.left_out);
  }
  Status labelled =
      labels ? label_by_csv(listing, *labels)
             : label_by_folder(files, paths, what,
                               "name a CSV of labels in images.labels if classes are not folders");
  if (!labelled.ok()) return std::move(labelled).error();
  return listing;
}

}  // namespace trainyard
