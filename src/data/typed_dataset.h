// src/data/typed_dataset.h: what the readers of all formats make, before it is written to a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "src/data/dataset.h"
#include "src/data/schema.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// Pixels that are too many for memory: they go from their source straight to the typed file.
class ImageStream {
 public:
  /// Takes the pixels of one row of the training or the test partition. Thread-safe.
  using Sink = std::function<Status(bool test, int64_t row, std::span<const uint8_t> pixels)>;
  virtual ~ImageStream() = default;
  /// Gives every row of both partitions once, in any order.
  virtual Status write(const Sink& sink) = 0;
};

struct TypedDataset {
  DatasetSchema schema;
  // With `images`: without image_u8; image_sums and image_ranges come with writing.
  TypedRows train;
  TypedRows test;
  std::unique_ptr<ImageStream> images;
};

/// `train` and `test` (empty path: no test set) are CSV files.
Result<TypedDataset> read_csv_dataset(const CsvOptions& options, const std::filesystem::path& train,
                                      const std::filesystem::path& test,
                                      const TableThreads& threads = {});

/// `train` and `test` (empty path: no test set) are rows in the sparse format of LIBSVM.
Result<TypedDataset> read_libsvm_dataset(const std::filesystem::path& train,
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

/// `data` and `test` (empty path: none) are folders or archives. Reads every image's header.
Result<TypedDataset> read_images_dataset(const ImagesOptions& options,
                                         const std::filesystem::path& data,
                                         const std::filesystem::path& test);

/// `data` and `test` (empty path: none) are folders or archives of .txt files.
Result<TypedDataset> read_text_files_dataset(const TextFilesOptions& options,
                                             const std::filesystem::path& data,
                                             const std::filesystem::path& test);

/// `data` is a folder or an archive with the binary files of CIFAR-10 or CIFAR-100.
Result<TypedDataset> read_cifar_dataset(const std::filesystem::path& data);

/// What a test set's arrays are called in the file that holds the others.
inline constexpr const char* kTestInputs = "test_inputs";
inline constexpr const char* kTestTargets = "test_targets";
/// NPZ or safetensors files, or a NPY file for each array. The test set's may be empty.
struct ArrayPaths {
  std::filesystem::path data = {}, test = {};
  std::filesystem::path inputs = {}, targets = {}, test_inputs = {}, test_targets = {};
};
Result<TypedDataset> read_arrays_dataset(const ArraysOptions& options, const ArrayPaths& paths);

/// Refuses, by RESOURCE_EXHAUSTED/DATASET_TOO_LARGE, what this machine's memory cannot hold.
Status check_memory(int64_t bytes, const std::string& what);

}  // namespace trainyard
