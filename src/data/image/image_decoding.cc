#include "src/data/image/image_decoding.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "src/base/cores.h"
#include "src/base/folder_files.h"
#include "src/base/mutex.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

using Part = ListedFile::Part;
constexpr int kThreadsMax = 16;  // bounds memory: each thread may decode kImagePixelsMax pixels
constexpr size_t kBatchBytes = size_t{1} << 20;  // least size of a batch of files for a thread
constexpr size_t kBatchesWaitingMax = 2 * kThreadsMax;

struct Work {
  ImageListing* listing;
  ListedImage* image;  // only the thread that has this work changes it
  size_t number;       // of the image among all listings
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

/// The numbers of the first damaged images. Thread-safe.
class FirstDamaged {
 public:
  explicit FirstDamaged(size_t count_max) : count_max_(count_max) {}

  void add(size_t number) {
    const MutexLock lock(mu_);
    numbers_.insert(number);
    if (numbers_.size() > count_max_) numbers_.erase(std::prev(numbers_.end()));
  }
  /// Returns whether count_max damaged images precede the image, so that it need not be decoded.
  bool precede(size_t number) const {
    const MutexLock lock(mu_);
    return numbers_.size() == count_max_ && number > *numbers_.rbegin();
  }

 private:
  const size_t count_max_;
  mutable Mutex mu_;
  std::set<size_t> numbers_ TRAINYARD_GUARDED_BY(mu_);
};

class Decoding {
 public:
  Decoding(const ImageUse& use, size_t damaged_max) : use_(use), damaged_(damaged_max) {}

  Status run(std::vector<ImageListing>& listings) {
    for_each(listings, [this](size_t number, ListedImage& image) {
      if (image.part != Part::kLeftOut && !image.damage.empty()) damaged_.add(number);
    });
    DecodeTeam team([this](Work& work) { decode(work); });
    size_t number = 0;
    for (ImageListing& listing : listings) {
      if (Status s = send(listing, number, team); !s.ok()) return s;
      number += listing.images.size();
    }
    team.finish();
    for_each(listings, [this](size_t at, ListedImage& image) {
      if (damaged_.precede(at)) image.damage.clear();
    });
    const MutexLock lock(mu_);
    return failed_ ? Status(*failed_) : Status();
  }

 private:
  template <typename F>
  static void for_each(std::vector<ImageListing>& listings, const F& use) {
    size_t number = 0;
    for (ImageListing& listing : listings) {
      for (ListedImage& image : listing.images) use(number++, image);
    }
  }

  /// Reads the files of a listing again and passes them to the team. `first` is the number of its
  /// first image.
  Status send(ImageListing& listing, size_t first, DecodeTeam& team) {
    if (Status s = listing.tree->rewind(); !s.ok()) return s;
    const auto changed = [&] {
      return dataset_error(listing.what, "the files changed while they were read");
    };
    WorkBatch batch;
    size_t bytes = 0;
    size_t i = 0;
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, listing.tree->next());
      if (!more) break;
      if (!is_image_path(listing.tree->path())) continue;
      if (i == listing.images.size() || listing.images[i].path != listing.tree->path()) {
        return changed();
      }
      const size_t number = first + i;
      ListedImage& image = listing.images[i++];
      if (damaged_.precede(number)) {
        (void)team.push(std::move(batch));
        return {};
      }
      if (image.part == Part::kLeftOut || !image.damage.empty()) continue;
      ASSIGN_OR_RETURN(std::string file, read_tree_file(*listing.tree, kImageFileBytesMax,
                                                        place_in_tree(listing.what, image.path)));
      bytes += file.size();
      batch.push_back({&listing, &image, number, std::move(file)});
      if (bytes < kBatchBytes) continue;
      if (!team.push(std::exchange(batch, {}))) return {};  // finish() reports the fault
      bytes = 0;
    }
    if (i != listing.images.size()) return changed();
    (void)team.push(std::move(batch));
    return {};
  }

  void decode(Work& work) {
    {
      const MutexLock lock(mu_);
      if (failed_) return;
    }
    if (damaged_.precede(work.number)) return;
    const Status used =
        use_(*work.image, work.bytes, place_in_tree(work.listing->what, work.image->path));
    if (used.ok()) return;
    if (used.error().reason == "DATASET_INVALID") {
      work.image->damage = used.error().violations.at(0).description;
      damaged_.add(work.number);
      return;
    }
    const MutexLock lock(mu_);
    if (!failed_) failed_ = used.error();
  }

  const ImageUse& use_;
  FirstDamaged damaged_;
  Mutex mu_;
  std::optional<Error> failed_ TRAINYARD_GUARDED_BY(mu_);  // the first error that is no damage
};

}  // namespace

Status decode_images(std::vector<ImageListing>& listings, const ImageUse& use, size_t damaged_max) {
  return Decoding(use, damaged_max).run(listings);
}

Status check_unchanged(int64_t height, int64_t width, const ListedImage& image,
                       const std::string& place) {
  if (height == image.info.height && width == image.info.width) return {};
  return dataset_error(place, "the file changed while it was read");
}

}  // namespace trainyard
