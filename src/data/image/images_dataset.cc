// Reads a dataset of image files in two passes. The first reads headers to find classes, sizes and
// counts. In the second, several threads decode the pixels and write them to the typed file. Rows
// are in the order of the paths, so that a folder and an archive of it give the same dataset.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "src/base/cores.h"
#include "src/base/mutex.h"
#include "src/base/text.h"
#include "src/data/image/image_listing.h"
#include "src/data/image/image_resize.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/test_share.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using Part = ListedFile::Part;
constexpr int kThreadsMax = 16;  // bounds memory: each thread may decode kImagePixelsMax pixels
constexpr size_t kBatchBytes = size_t{1} << 20;  // least size of a batch of files for a thread
constexpr size_t kBatchesWaitingMax = 2 * kThreadsMax;

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

Status set_classes(std::vector<ImageListing>& listings, TargetSchema& target) {
  ASSIGN_OR_RETURN(target.classes,
                   find_classes(files_of(all_images(listings), Part::kTrain), "image"));
  Problems problems;
  for (ImageListing& listing : listings) {
    ListedFiles images;
    for (ListedImage& image : listing.images) images.push_back(&image);
    set_codes(images, target.classes, listing.what, "image", problems);
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

struct Work {
  size_t listing;
  size_t image;
  std::string bytes;
};
using WorkBatch = std::vector<Work>;

/// A pool of threads that process batches until finish().
class DecodeTeam {
 public:
  explicit DecodeTeam(std::function<void(Work&)> work) : work_(std::move(work)) {
    const int count = std::clamp(usable_cores(), 1, kThreadsMax);
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  ~DecodeTeam() { close(); }

  /// Queues a batch; waits while the queue is full. Returns false once a thread has failed.
  bool push(WorkBatch batch) {
    MutexLock lock(mu_);
    changed_.wait(lock, [&]() TRAINYARD_REQUIRES(mu_) {
      return waiting_.size() < kBatchesWaitingMax || fault_;
    });
    if (fault_) return false;
    waiting_.push_back(std::move(batch));
    changed_.notify_all();
    return true;
  }
  /// Waits until all batches are processed. Rethrows the exception of a thread that failed.
  void finish() {
    close();
    const MutexLock lock(mu_);
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  void close() {
    {
      const MutexLock lock(mu_);
      closed_ = true;
    }
    changed_.notify_all();
    threads_.clear();  // joins all threads
  }
  void run() noexcept {
    for (;;) {
      WorkBatch batch;
      {
        MutexLock lock(mu_);
        changed_.wait(
            lock, [&]() TRAINYARD_REQUIRES(mu_) { return !waiting_.empty() || closed_ || fault_; });
        if (waiting_.empty() || fault_) return;
        batch = std::move(waiting_.front());
        waiting_.pop_front();
      }
      changed_.notify_all();
      try {
        for (Work& work : batch) work_(work);
      } catch (...) {
        const MutexLock lock(mu_);
        fault_ = std::current_exception();
        changed_.notify_all();
        return;
      }
    }
  }

  const std::function<void(Work&)> work_;
  Mutex mu_;
  CondVar changed_;
  std::deque<WorkBatch> waiting_ TRAINYARD_GUARDED_BY(mu_);  // at most kBatchesWaitingMax
  bool closed_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::exception_ptr fault_ TRAINYARD_GUARDED_BY(mu_);
  std::vector<std::jthread> threads_;
};

class DecodedImages final : public ImageStream {
 public:
  DecodedImages(std::vector<ImageListing> listings, Shape image, ResizeMode resize)
      : listings_(std::move(listings)), image_(std::move(image)), resize_(resize) {}

  Status write(const Sink& sink) override {
    DecodeTeam team([&](Work& work) { decode(work, sink); });
    for (size_t l = 0; l < listings_.size(); ++l) {
      if (Status s = send(l, team); !s.ok()) return s;
    }
    team.finish();
    const MutexLock lock(mu_);
    if (failed_) return *failed_;
    if (problems_.empty()) return {};
    Problems problems;
    for (const auto& [key, error] : problems_) problems.add(error);
    return problems.error();
  }

 private:
  using Key = std::pair<size_t, std::string>;  // (source, path), by which messages are sorted

  /// Reads the files of a listing again and passes them to the team.
  Status send(size_t l, DecodeTeam& team) {
    ImageListing& listing = listings_[l];
    if (Status s = listing.tree->rewind(); !s.ok()) return s;
    WorkBatch batch;
    size_t bytes = 0;
    size_t i = 0;
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, listing.tree->next());
      if (!more) break;
      if (!is_image_path(listing.tree->path())) continue;
      if (i == listing.images.size() || listing.images[i].path != listing.tree->path()) {
        return dataset_error(listing.what, "the files changed while they were read");
      }
      if (listing.images[i].part != Part::kLeftOut) {
        ASSIGN_OR_RETURN(std::string file,
                         read_tree_file(*listing.tree, kImageFileBytesMax,
                                        place_in_tree(listing.what, listing.tree->path())));
        bytes += file.size();
        batch.push_back({l, i, std::move(file)});
        if (bytes >= kBatchBytes) {
          if (!team.push(std::exchange(batch, {}))) return {};  // finish() reports the fault
          bytes = 0;
        }
      }
      ++i;
    }
    if (i != listing.images.size()) {
      return dataset_error(listing.what, "the files changed while they were read");
    }
    (void)team.push(std::move(batch));
    return {};
  }

  void decode(Work& work, const Sink& sink) {
    {
      const MutexLock lock(mu_);
      if (failed_) return;
    }
    const ImageListing& listing = listings_[work.listing];
    const ListedImage& image = listing.images[work.image];
    const std::string place = place_in_tree(listing.what, image.path);
    Result<ImagePixels> pixels = decode_image(work.bytes, image_[0], place);
    if (pixels.ok() && (pixels->height != image.info.height || pixels->width != image.info.width)) {
      pixels = dataset_error(place, "the file changed while it was read");
    }
    if (!pixels.ok()) {
      const MutexLock lock(mu_);
      problems_.emplace(Key{work.listing, image.path}, pixels.error());
      if (problems_.size() > Problems::kCountMax) problems_.erase(std::prev(problems_.end()));
      return;
    }
    std::vector<uint8_t> planes(static_cast<size_t>(image_.elements()));
    place_image(*pixels, image_, resize_, planes);
    if (Status s = sink(image.part == Part::kTest, image.row, planes); !s.ok()) {
      const MutexLock lock(mu_);
      if (!failed_) failed_ = std::move(s).error();
    }
  }

  std::vector<ImageListing> listings_;
  const Shape image_;
  const ResizeMode resize_;
  Mutex mu_;
  // The first kCountMax problems by key, independent of the order in which threads find them.
  std::map<Key, Error> problems_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<Error> failed_ TRAINYARD_GUARDED_BY(mu_);  // the first error of the sink
};

}  // namespace

Result<TypedDataset> read_images_dataset(const ImagesOptions& options,
                                         const std::filesystem::path& data,
                                         const std::filesystem::path& test) {
  if (Status s = check_options(options, !test.empty()); !s.ok()) return std::move(s).error();
  std::vector<ImageListing> listings;
  ASSIGN_OR_RETURN(listings.emplace_back(), list_images(options, data, "data", true));
  if (Status s = check_options(options, listings[0].has_test); !s.ok()) {
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
  if (options.test_share > 0) {
    draw_test_files(all_images(listings), options.test_share, options.seed);
  }

  TypedDataset result;
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.target.name = listings[0].numeric ? "number" : "class";
  if (files_of(all_images(listings), Part::kTrain).empty()) {
    return dataset_error("data", "there are no training images");
  }
  if (listings[0].numeric) {
    schema.target.kind = TargetSchema::Kind::kNumeric;
  } else if (Status s = set_classes(listings, schema.target); !s.ok()) {
    return std::move(s).error();
  }
  ASSIGN_OR_RETURN(schema.image, find_image_shape(options, listings));
  if (!options.size.empty()) schema.resize = *find_resize(options.resize);
  if (schema.image.elements() > kImageValuesMax) {
    return dataset_error("data", "images of " + schema.image.to_string() + ", expected at most " +
                                     std::to_string(kImageValuesMax) +
                                     " values; give a smaller images.size");
  }
  for (const ImageListing& listing : listings) schema.skipped_files += listing.skipped;
  fill_rows(listings, Part::kTrain, listings[0].numeric, result.train);
  if (Status s = check_numbers_differ(result.train.target_numeric, "data"); !s.ok()) {
    return std::move(s).error();
  }
  fill_rows(listings, Part::kTest, listings[0].numeric, result.test);
  schema.train_rows = result.train.rows;
  schema.test_rows = result.test.rows;
  result.images = std::make_unique<DecodedImages>(std::move(listings), schema.image, schema.resize);
  return result;
}

}  // namespace trainyard
