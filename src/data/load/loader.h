// src/data/load/loader.h: batches as a function of the step.
//
// Epoch e visits the training rows in a Philox permutation keyed by (seed, "shuffle", e); step s of
// the job is batch s % steps_per_epoch of epoch s / steps_per_epoch. The last rows of an epoch that
// do not fill a batch are left out (other rows each epoch), or the first rows of the same order
// complete their batch. The rows of a stream are the tokens at which its windows begin
// (src/data/load/windows.h). Threads prepare the next batches ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/held_rows.h"
#include "src/data/load/augment.h"
#include "src/data/load/mix.h"
#include "src/data/preprocessing.h"

namespace trainyard {

/// Rows that split_rows() holds out: the nearest whole number, which may be 0 or all. Planning asks
/// it without the data.
int64_t validation_row_count(int64_t rows, double validation_fraction);

/// A split of [0, rows) into training and validation rows, keyed by (seed, "split"). Both
/// ascending. The fraction is in [0, 1].
struct Split {
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
  int64_t shift_max = 0;  // of a stream's training windows, in tokens
};
Split split_rows(int64_t rows, double validation_fraction, uint64_t seed);

/// The split of a dataset; of a stream, into windows of `context_length`.
Split split_dataset(const DatasetSchema& schema, int64_t context_length, double validation_fraction,
                    uint64_t seed);
/// All rows, or windows, of its test set.
std::vector<int64_t> test_rows(const DatasetSchema& schema, int64_t context_length);

/// Of an epoch over so many rows. Planning asks it without the data.
int64_t batches_per_epoch(int64_t rows, int64_t batch_size, bool drop_last);

struct Batch {
  int64_t rows = 0;
  std::vector<float> input;           // [rows, ...], or
  std::vector<int32_t> tokens;        // [rows, T]
  std::vector<int32_t> target_class;  // [rows], or the next tokens [rows, T]
  std::vector<float> target_shares;   // [rows, classes] of mixed images, whose target they are
  std::vector<float> target_numeric;  // [rows], standardized
  // [rows], for a device that holds the rows: they represent the input and the target; only
  // target_class is also given, if there is one class per row.
  std::vector<kernels::HeldSample> samples;
  std::vector<uint8_t> stored;  // [rows, C, H, W] of samples whose rows travel with them

  std::span<const std::byte> input_bytes() const {
    return tokens.empty() ? std::as_bytes(std::span(input)) : std::as_bytes(std::span(tokens));
  }
  std::span<const std::byte> target_bytes() const {
    return !target_shares.empty() ? std::as_bytes(std::span(target_shares))
           : target_class.empty() ? std::as_bytes(std::span(target_numeric))
                                  : std::as_bytes(std::span(target_class));
  }
};

/// Fills `batch` with `rows` of the partition, in their order: for evaluation, where each row is
/// seen once and the last batch may be short.
void fill_batch(const RowTransform& transform, const Partition& partition,
                std::span<const int64_t> rows, Batch& batch, const ImageEdit& edit = nullptr);

class Loader {
 public:
  struct Options {
    int64_t batch_size = 1;
    uint64_t seed = 0;
    bool shuffle = true;
    bool drop_last = true;         // false: each row is in each epoch, the first ones again
    int64_t shift_max = 0;         // with shuffle: rows of an epoch are moved by 0 .. shift_max
    int64_t first_step = 0;        // resume: start here
    int64_t prefetch_batches = 4;  // bound of the queue between the threads and next()
    int threads = 1;               // they change only the speed, never a batch
    Augmenter augmenter = {};      // of images, drawn again in every epoch
    Mixer mixer = {};              // of images and their classes, behind the augmenter
    bool samples = false;          // Batch::samples; then no mixer, and the augmenter moves_alone()
    // With samples: Batch::stored, and samples count from the first of each so many rows.
    int64_t stored_rows = 0;
  };
  /// `partition` must outlive the loader; `rows` are indices into it, enough of them for a batch.
  Loader(const DatasetSchema& schema, const Preprocessing& preprocessing,
         const Partition& partition, std::vector<int64_t> rows, const Options& options);
  ~Loader();
  int64_t steps_per_epoch() const;
  /// The batch of the next step; valid until the following call. Steps come in order from
  /// first_step. One caller at a time.
  const Batch& next();
  /// Seconds that next() has waited, in all: the share of time that training starved.
  double wait_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard
