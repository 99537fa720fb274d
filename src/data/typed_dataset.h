// src/data/typed_dataset.h: what the readers of all formats make, before it is written to a folder.
#pragma once

#include "src/data/dataset.h"
#include "src/data/schema.h"
#include "src/data/typed_rows.h"

namespace trainyard {

struct TypedDataset {
  DatasetSchema schema;
  TypedRows train;
  TypedRows test;
};

/// `train` and `test` (empty path: no test set) are CSV files.
Result<TypedDataset> read_csv_dataset(const CsvOptions& options, const std::filesystem::path& train,
                                      const std::filesystem::path& test);

struct IdxPaths {
  std::filesystem::path train_images, train_labels;
  std::filesystem::path test_images, test_labels;  // both or none
};
Result<TypedDataset> read_idx_dataset(const IdxPaths& paths);

/// `train` and `test` (empty path: the share that the options say) are texts.
Result<TypedDataset> read_text_dataset(const TextOptions& options,
                                       const std::filesystem::path& train,
                                       const std::filesystem::path& test);

/// Refuses, by RESOURCE_EXHAUSTED/DATASET_TOO_LARGE, what this machine's memory cannot hold.
Status check_memory(int64_t bytes, const std::string& what);

}  // namespace trainyard
