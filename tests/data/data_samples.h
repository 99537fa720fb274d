// tests/data/data_samples.h: small source files created by tests, and their ingest.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {

std::string gzip(std::string_view text);
std::string from_base64(const std::string& text);

/// Returns an IDX file: the header and the elements as bytes.
std::string idx_file(unsigned type, const std::vector<uint32_t>& sizes, std::string_view elements);
std::string idx_floats(const std::vector<float>& values);

CsvOptions csv_options(std::string target);

/// These convert a schema to the text of its JSON, and back.
std::string schema_text(const DatasetSchema& schema);
Result<DatasetSchema> parse_schema(std::string_view text);

/// Ingests CSV texts and opens the result, which stays valid as long as this object.
class IngestedCsv {
 public:
  IngestedCsv(const CsvOptions& options, std::string_view train,
              std::optional<std::string_view> test = std::nullopt);
  const Result<Dataset>& result() const { return dataset_; }
  bool ok() const { return dataset_.ok(); }
  const Dataset& operator*() const { return dataset_.value(); }
  const Dataset* operator->() const { return &dataset_.value(); }
  /// Returns the error message; "" if the ingest succeeded.
  std::string message() const { return ok() ? "" : dataset_.error().message; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  Result<Dataset> dataset_;
};

/// Ingests a text and opens the result, which stays valid as long as this object.
class IngestedText {
 public:
  explicit IngestedText(std::string_view train, const TextOptions& options = {},
                        std::optional<std::string_view> test = std::nullopt);
  bool ok() const { return dataset_.ok(); }
  const Dataset& operator*() const { return dataset_.value(); }
  const Dataset* operator->() const { return &dataset_.value(); }
  std::string message() const { return ok() ? "" : dataset_.error().message; }

 private:
  TemporaryFolder folder_;
  Result<Dataset> dataset_;
};

/// Ingests IDX files and opens the result. If `test_images` is empty, there is no test set.
class IngestedIdx {
 public:
  IngestedIdx(std::string_view train_images, std::string_view train_labels,
              std::string_view test_images = {}, std::string_view test_labels = {});
  bool ok() const { return dataset_.ok(); }
  const Dataset& operator*() const { return dataset_.value(); }
  const Dataset* operator->() const { return &dataset_.value(); }
  std::string message() const { return ok() ? "" : dataset_.error().message; }

 private:
  TemporaryFolder folder_;
  Result<Dataset> dataset_;
};

/// Ingests files of any format and opens the result. `sources` has the content of each source of
/// `request`, by its role.
class IngestedFiles {
 public:
  IngestedFiles(IngestRequest request,
                const std::vector<std::pair<std::string, std::string>>& sources);
  bool ok() const { return dataset_.ok(); }
  const Dataset& operator*() const { return dataset_.value(); }
  const Dataset* operator->() const { return &dataset_.value(); }
  std::string message() const { return ok() ? "" : dataset_.error().message; }
  const Error& error() const { return dataset_.error(); }

 private:
  TemporaryFolder folder_;
  Result<Dataset> dataset_;
};

/// Copies the values into a vector, because spans cannot be compared with ==.
template <typename T>
std::vector<T> copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

/// Returns the folder of the real datasets: TRAINYARD_TEST_DATA, else ../shared/data next to the
/// checkout. Returns nothing if it does not exist.
std::optional<std::filesystem::path> real_data_folder();

}  // namespace trainyard
