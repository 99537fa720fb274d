// src/data/load/loader.h: prepares the batches of training, each a function of the step.
//
// Epoch e visits the training rows in a Philox permutation keyed by (seed, "shuffle", e); step s of
// the job is batch s % steps_per_epoch of epoch s / steps_per_epoch. If the last rows of an epoch
// do not fill a batch, they are left out (other rows in each epoch), or the batch is completed by
// the first rows of the epoch. The rows of a stream are the tokens at which its windows begin
// (src/data/load/windows.h), those of documents are Partition::packed (src/data/load/packing.h).
// Threads prepare the next batches in advance.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/resident_rows.h"
#include "src/data/load/augment.h"
#include "src/data/load/mix.h"
#include "src/data/preprocessing.h"

namespace trainyard {

/// Returns the number of batches in an epoch of `rows` rows. Planning calls it without the data.
int64_t batches_per_epoch(int64_t rows, int64_t batch_size, bool drop_last);

struct Batch {
  int64_t rows = 0;
  std::vector<float> input;        // [rows, ...]; empty for text
  std::vector<int32_t> tokens;     // [rows, T]; only for text
  std::vector<int32_t> positions;  // [rows, T], of documents: each token's place in its document
  // [rows], or the next tokens [rows, T], of documents -1 where the next token does not count
  std::vector<int32_t> target_class;
  std::vector<float> target_shares;   // [rows, classes], the targets of mixed images
  std::vector<float> target_numeric;  // [rows], standardized
  // [rows], for a device that gathers the rows itself. They replace input and target; of the
  // vectors above only target_class is filled, if each row has a class.
  std::vector<kernels::ResidentSample> samples;
  std::vector<uint8_t> stored;     // [rows, C, H, W], the staged rows to which `samples` refer
  std::vector<float> loss_shares;  // [parts] of documents, see Loader::Options::parts

  std::span<const std::byte> input_bytes() const {
    return tokens.empty() ? std::as_bytes(std::span(input)) : std::as_bytes(std::span(tokens));
  }
  std::span<const std::byte> target_bytes() const {
    return !target_shares.empty() ? std::as_bytes(std::span(target_shares))
           : target_class.empty() ? std::as_bytes(std::span(target_numeric))
                                  : std::as_bytes(std::span(target_class));
  }
};

/// Fills `batch` with the given rows of the partition, in this order. Evaluation calls it directly,
/// since there each row occurs once and the last batch may be smaller.
void fill_batch(const RowTransform& transform, const Partition& partition,
                std::span<const int64_t> rows, Batch& batch, const ImageEdit& edit = nullptr);

class Loader {
 public:
  struct Options {
    int64_t batch_size = 1;
    uint64_t seed = 0;
    bool shuffle = true;
    bool drop_last = true;         // if false, the first rows of an epoch complete its last batch
    int64_t shift_max = 0;         // with shuffle: shifts an epoch's windows by 0 .. shift_max
    int64_t first_step = 0;        // the first step; above 0 after a resume
    int64_t prefetch_batches = 4;  // the most batches that are prepared in advance
    int threads = 1;               // influences only the speed, never a batch
    Augmenter augmenter = {};      // changes images, differently in every epoch
    Mixer mixer = {};              // mixes images and their classes after the augmenter
    // Fills Batch::samples. Then there must be no mixer, and the augmenter must pass moves_alone().
    bool samples = false;
    // If > 0 (only with `samples`), fills Batch::stored. The starts of samples are then relative to
    // the group of `stored_rows` consecutive rows of the batch that contains the row.
    int64_t stored_rows = 0;
    // Documents: the batch is computed in so many equal parts, and the mean loss of each part is
    // weighted by Batch::loss_shares, so that the mean over the parts is the mean over all counted
    // tokens of the batch.
    int64_t parts = 1;
  };
  /// `partition` must outlive the loader. `rows` are indices into it, at least enough for one
  /// batch.
  Loader(const DatasetSchema& schema, const Preprocessing& preprocessing,
         const Partition& partition, std::vector<int64_t> rows, const Options& options);
  ~Loader();
  int64_t steps_per_epoch() const;
  /// Returns the batch of the next step, which is valid until the following call. Steps are in
  /// order, from first_step on. Only one thread may call it at a time.
  const Batch& next();
  /// Returns the total time in seconds for which next() had to wait for a batch.
  double wait_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard
