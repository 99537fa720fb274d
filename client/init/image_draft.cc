// Drafts for images: a folder or an archive of image files, and the formats of CIFAR and MNIST.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "client/init/draft_parts.h"
#include "src/base/folder_files.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/data/image/image_listing.h"
#include "src/data/statistics.h"
#include "src/data/typed_dataset.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;

std::string side_text(int64_t height, int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

/// Returns the median length of the images' shorter sides.
int64_t usual_side(const std::vector<const ListedImage*>& images) {
  std::vector<int64_t> sides;
  for (const ListedImage* image : images) {
    sides.push_back(std::min(image->info.height, image->info.width));
  }
  std::ranges::nth_element(sides, sides.begin() + std::ssize(sides) / 2);
  return sides[sides.size() / 2];
}

/// Sets the size to which the images are resized, if their sizes differ or are large.
void set_size(const std::vector<const ListedImage*>& images, JobDraft& draft) {
  std::set<std::pair<int64_t, int64_t>> sizes;
  bool colour = false;
  for (const ListedImage* image : images) {
    sizes.emplace(image->info.height, image->info.width);
    colour |= image->info.colour;
  }
  const auto [height, width] = *sizes.begin();
  const int64_t usual = usual_side(images);
  const int64_t side = guess_image_side(usual);
  draft.facts.image = {colour ? 3 : 1, height, width};
  const std::string channels = colour ? ", in color" : ", in gray";
  if (sizes.size() == 1) {
    draft.found += " of " + side_text(height, width) + " pixels" + channels;
    if (usual <= side) return;
  } else {
    draft.found += " of " + grouped(std::ssize(sizes)) + " sizes" + channels;
  }
  const std::string text = std::to_string(side);
  draft.facts.image = {colour ? 3 : 1, side, side};
  draft.fields.push_back({"size", "[" + text + ", " + text + "]",
                          "larger images show more detail and train more slowly; most are " +
                              std::to_string(usual) + " pixels on their shorter side"});
  draft.fields.push_back(
      {"resize", "crop", "keeps the middle; pad keeps the whole image, stretch distorts it"});
}

/// Proposes to leave out the images whose header is damaged. Only the ingest reads the pixels.
void leave_out_damaged(const ImageListing& listing, JobDraft& draft) {
  constexpr size_t kShown = 3;
  std::vector<std::string> damaged;
  for (const ListedImage& image : listing.images) {
    if (!image.damage.empty())
      damaged.push_back(quoted_value(image.path) + " (" + image.damage + ")");
  }
  if (damaged.empty()) return;
  const int64_t count = std::ssize(damaged);
  damaged.resize(std::min(damaged.size(), kShown));
  draft.fields.push_back(
      {"damaged", "skip", "leaves out images that cannot be read; refuse ends with an error"});
  draft.notes.push_back(count_of(count, "image") + " cannot be read: " + joined(damaged, ", ") +
                        (count > static_cast<int64_t>(kShown) ? ", ..." : "") + ".");
}

int64_t count_classes(const ImageListing& listing) {
  std::set<std::string_view> labels;
  for (const ListedImage& image : listing.images) {
    if (image.part == ListedFile::Part::kTrain) labels.insert(image.label);
  }
  return std::ssize(labels);
}

/// Returns the images as listed by a CSV file among them that labels each image, if there is one.
std::optional<ImageListing> list_by_labels(const fs::path& path, std::string& labels) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) return std::nullopt;
  const auto files = list_folder_files(path, "data");
  if (!files.ok()) return std::nullopt;
  for (const std::string& file : *files) {
    if (!lower(file).ends_with(".csv")) continue;
    ImagesOptions options;
    options.labels = file;
    auto listing = list_images(options, path, "data", /*partitioned=*/true);
    if (!listing.ok()) continue;
    labels = file;
    return std::move(*listing);
  }
  return std::nullopt;
}

Result<ImageListing> list(const fs::path& path, std::string& labels) {
  auto by_folders = list_images({}, path, "data", /*partitioned=*/true);
  if (by_folders.ok() && count_classes(*by_folders) > 1) return by_folders;
  if (auto by_labels = list_by_labels(path, labels)) return std::move(*by_labels);
  const std::string& message = by_folders.ok() ? "" : by_folders.error().message;
  if (!by_folders.ok() && message.find("is not in a class's folder") == message.npos) {
    return by_folders;
  }
  return unsupported(path.string() + " has images that are " +
                     (by_folders.ok() ? "all of one class" : "not in a folder for each class") +
                     ". Trainyard reads cats/1.jpg and dogs/2.jpg, or a labels.csv next to the "
                     "images with the columns file, and class or number.");
}

}  // namespace

Result<JobDraft> draft_images(const fs::path& path) {
  std::string labels;
  ASSIGN_OR_RETURN(ImageListing listing, list(path, labels));
  std::vector<const ListedImage*> train;
  std::map<std::string, int64_t> counts;
  int64_t tests = 0;
  for (const ListedImage& image : listing.images) {
    if (!image.damage.empty()) continue;
    tests += image.part == ListedFile::Part::kTest ? 1 : 0;
    if (image.part != ListedFile::Part::kTrain) continue;
    train.push_back(&image);
    ++counts[image.label];
  }
  if (train.empty()) return unsupported(path.string() + " has no images to train on.");
  JobDraft draft;
  draft.format = "images";
  draft.sources = {{"path", path}};
  draft.found = count_of(std::ssize(train), "image");
  if (tests > 0) draft.found += " to train and " + grouped(tests) + " to test";
  draft.facts.kind = DataFacts::Kind::kImages;
  DatasetSchema schema;
  DatasetStatistics statistics;
  schema.train_rows = std::ssize(train);
  if (listing.numeric) schema.target.kind = TargetSchema::Kind::kNumeric;
  for (const auto& [label, count] : counts) {
    schema.target.classes.push_back(label);
    statistics.classes.push_back(count);
  }
  describe_target(schema, statistics, "image", draft);
  if (!labels.empty()) draft.fields.push_back({"labels", yaml_text(labels)});
  set_size(train, draft);
  leave_out_damaged(listing, draft);
  std::vector<DataWarning> warnings;
  listing.left_out.add_warnings(listing.files(), "image", warnings);
  add_alike_classes(schema.target.classes, warnings);
  for (const DataWarning& warning : warnings) draft.notes.push_back(warning.message);
  draft.guess = first_guess(draft.facts);
  return draft;
}

Result<JobDraft> draft_cifar(const fs::path& path) {
  JobDraft draft;
  draft.format = "cifar";
  draft.sources = {{"path", path}};
  draft.found = "CIFAR's binary files";
  draft.target_says = "the class of each image";
  draft.facts = {DataFacts::Kind::kImages, 50'000, 10, 0, {3, 32, 32}};
  draft.guess = first_guess(draft.facts);
  return draft;
}

Result<JobDraft> draft_idx(const fs::path& path) {
  std::error_code ec;
  const fs::path folder = fs::is_directory(path, ec) ? path : path.parent_path();
  ASSIGN_OR_RETURN(const std::vector<std::string> files,
                   list_folder_files(folder.empty() ? "." : folder, "data"));
  JobDraft draft;
  IdxPaths paths;
  const auto find = [&](bool test, bool labels, const char* field, fs::path& found) {
    for (const std::string& file : files) {
      const std::string name = lower(fs::path(file).filename().string());
      const bool is_labels = name.find("label") != name.npos;
      const bool is_test = name.starts_with("t10k") || name.starts_with("test");
      const bool is_idx = name.find("idx") != name.npos;
      if (!is_idx || is_test != test || is_labels != labels) continue;
      found = folder / file;
      draft.sources.push_back({field, found});
      return;
    }
  };
  find(false, false, "train_images", paths.train_images);
  find(false, true, "train_labels", paths.train_labels);
  if (paths.train_images.empty() || paths.train_labels.empty()) {
    return unsupported(path.string() +
                       ": IDX files come in pairs, such as train-images-idx3-ubyte and "
                       "train-labels-idx1-ubyte in one folder; the other one is missing.");
  }
  find(true, false, "test_images", paths.test_images);
  find(true, true, "test_labels", paths.test_labels);
  if (paths.test_images.empty() != paths.test_labels.empty()) {
    paths.test_images.clear();
    paths.test_labels.clear();
    draft.sources.resize(2);
  }
  ASSIGN_OR_RETURN(const TypedDataset data, read_idx_dataset(paths));
  draft.found = count_of(data.schema.train_rows, "image") + " to train";
  if (data.schema.test_rows > 0) {
    draft.found += " and " + grouped(data.schema.test_rows) + " to test";
  }
  draft.found += ", of " + side_text(data.schema.image[1], data.schema.image[2]) + " pixels (IDX)";
  draft.facts.kind = DataFacts::Kind::kImages;
  draft.facts.image = data.schema.image;
  describe_target(data.schema, measure(data.schema, data.train), "image", draft);
  draft.guess = first_guess(draft.facts);
  return draft;
}

}  // namespace trainyard::init
