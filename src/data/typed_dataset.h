// src/data/typed_dataset.h: the dataset in memory that the readers of all formats return, before it
// is written to a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "src/data/dataset.h"
#include "src/data/schema.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// Images that may be too large for memory. Their pixels are written directly from the source to
/// the typed file.
class ImageStream {
 public:
  /// Receives the pixels of one row of the training or the test partition. Thread-safe.
  using Sink = std::function<Status(bool test, int64_t row, std::span<const uint8_t> pixels)>;
  virtual ~ImageStream() = default;
  /// Passes every row of both partitions to `sink` once, in any order.
  virtual Status write(const Sink& sink) = 0;
};

struct TypedDataset {
  DatasetSchema schema;
  // If `images` is set, image_u8 is empty, and writing the dataset fills image_sums and
  // image_ranges.
  TypedRows train;
  TypedRows test;
  std::unique_ptr<ImageStream> images;
};

/// `train` and `test` are CSV or JSON lines files; an empty `test` means no test set. `tokenizer`:
/// the files of the tokenizer `pretrained`.
Result<TypedDataset> read_csv_dataset(const CsvOptions& options, const std::filesystem::path& train,
                                      const std::filesystem::path& test,
                                      const TableThreads& threads = {},
                                      TokenizerFiles tokenizer = {});

/// `train` and `test` are files in the sparse format of LIBSVM; an empty `test` means no test set.
Result<TypedDataset> read_libsvm_dataset(const std::filesystem::path& train,
                                         const std::filesystem::path& test);

struct IdxPaths {
  std::filesystem::path train_images, train_labels;
  std::filesystem::path test_images, test_labels;  // both empty: no test set
};
Result<TypedDataset> read_idx_dataset(const IdxPaths& paths);

/// `train` and `test` are texts. If `test` is empty, options.test_share of `train` is the test set.
Result<TypedDataset> read_text_dataset(const TextOptions& options,
                                       const std::filesystem::path& train,
                                       const std::filesystem::path& test);

/// `data` and `test` are folders or archives; an empty `test` means that there is none. Reads every
/// image's header.
Result<TypedDataset> read_images_dataset(const ImagesOptions& options,
                                         const std::filesystem::path& data,
                                         const std::filesystem::path& test);

/// `data` and `test` are folders or archives of .txt files; an empty `test` means that there is
/// none.
Result<TypedDataset> read_text_files_dataset(const TextFilesOptions& options,
                                             const std::filesystem::path& data,
                                             const std::filesystem::path& test);

/// `data` is a folder or an archive with the binary files of CIFAR-10 or CIFAR-100.
Result<TypedDataset> read_cifar_dataset(const std::filesystem::path& data);

/// The names of the test set's arrays in a file that contains the training arrays, too.
inline constexpr const char* kTestInputs = "test_inputs";
inline constexpr const char* kTestTargets = "test_targets";
/// The paths of NPZ or safetensors files, or of a NPY file for each array. Those of the test set
/// may be empty.
struct ArrayPaths {
  std::filesystem::path data = {}, test = {};
  std::filesystem::path inputs = {}, targets = {}, test_inputs = {}, test_targets = {};
};
Result<TypedDataset> read_arrays_dataset(const ArraysOptions& options, const ArrayPaths& paths);

/// Refuses more bytes than this machine's memory: RESOURCE_EXHAUSTED/DATASET_TOO_LARGE.
Status check_memory(int64_t bytes, const std::string& what);

}  // namespace trainyard
