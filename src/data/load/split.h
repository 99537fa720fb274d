// src/data/load/split.h: which training rows of a dataset a job holds out for validation. The split
// depends on the dataset and the rule alone, never on threads or devices.
//
//   by class   rows of each class in equal shares, if the target is a class (src/data/class_draw.h)
//   by group   whole groups of rows that have the same value in a column
//   by time    the rows with the latest values of a column
//   at random  rows of a numeric target
//
// A stream of tokens is divided in windows instead (windows.h), and documents are drawn at random
// before they are put into rows (packing.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

struct DatasetSchema;
struct PackedRows;
struct Partition;

/// How a job splits the training rows. The recipe was checked: at most one of `group` and `time`,
/// which the dataset has, and folds only without `time`.
struct SplitRule {
  double share = 0;  // of the rows, [0, 1]; not used with folds
  uint64_t seed = 0;
  std::string group = {}, time = {};  // columns; empty: not by group, not by time
  int64_t folds = 0, fold = 0;        // holds out part `fold` (from 1) of `folds`; 0 folds: a share
  bool packs = true;                  // of documents: several share a row (packing.h)
};

/// Rows of [0, rows), windows of a stream, or rows of `packed`. Both lists are ascending.
struct Split {
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
  int64_t shift_max = 0;  // for a stream: the largest shift of training windows, in tokens
  std::shared_ptr<const PackedRows> packed = {};  // for documents: all rows
};

/// Returns a random split, keyed by (seed, "split"). The share must be in [0, 1].
Split split_rows(int64_t rows, double share, uint64_t seed);

/// Returns whether the rule gives each class its share.
bool splits_by_class(const DatasetSchema& schema, const SplitRule& rule);

/// Returns the number of rows that split_dataset() holds out, from the schema alone. Not for a
/// stream or documents.
int64_t count_validation_rows(const DatasetSchema& schema, const SplitRule& rule);

/// Returns the number of rows of each class that remain for training. Needs splits_by_class().
std::vector<int64_t> count_training_classes(const DatasetSchema& schema, const SplitRule& rule);

/// Returns the split of a dataset's training rows `train`; for a stream, of its windows of
/// `context_length` tokens. Not for documents (split_documents()).
Split split_dataset(const DatasetSchema& schema, const Partition& train, int64_t context_length,
                    const SplitRule& rule);

/// Returns the number of rows of each class among `rows` of the partition.
std::vector<int64_t> count_classes(const DatasetSchema& schema, const Partition& partition,
                                   std::span<const int64_t> rows);

/// Refuses a split that leaves a class of the dataset without a training row, and names it.
Status check_classes_remain(const DatasetSchema& schema, const SplitRule& rule,
                            std::span<const int64_t> training_classes);

/// Returns all rows, or windows, of the test set. Not for documents.
std::vector<int64_t> test_rows(const DatasetSchema& schema, int64_t context_length);

}  // namespace trainyard
