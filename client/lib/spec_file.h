// client/lib/spec_file.h: reads a job spec file from the path that a user types into a checked
// JobFile.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/spec/dataset_format.h"
#include "proto/spec/read.h"
#include "src/checkpoint/weights_file.h"
#include "trainyard/v1/job_spec.pb.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::client {

/// Replaces field names of requests in a server's error by those that users know: removes `spec.`,
/// and turns job_id and array_id into `name`.
Error with_user_field_names(Error error, const std::string& name = "name");

struct SpecFile {
  spec::Document document;
  v1::JobFile file;
  std::filesystem::path folder;  // paths in the file are relative to it
  // Once model.onnx or model.pretrained is imported: the file to which recipe.initial_weights.path
  // refers.
  std::filesystem::path imported_weights = {};
  // If model.pretrained is a folder without weights: the tensors that they would have, with which
  // the job can be planned.
  std::vector<FileTensor> implied_tensors = {};

  v1::JobSpec job_spec() const { return spec::job_spec(file); }
  /// Returns whether the file names data, which the client must upload before it submits.
  bool has_data() const { return spec::brings_data(file.dataset()); }
  bool has_weights() const { return spec::has_weights_file(file.recipe()); }
  /// Returns the path of the weights' file; requires has_weights().
  std::filesystem::path weights_path() const;
  /// Refuses an array, for commands that take a single job.
  Status check_single(std::string_view command) const;
  /// Replaces the file's name by the value of --name.
  void set_name(const std::string& name);
  /// Adds this file's line and column, or the option, to each field that the server's error names.
  Error with_positions(Error error) const;
};

/// Reads a YAML or JSON file; "-" is standard input.
Result<spec::Document> read_document_file(const std::filesystem::path& path);

/// Reads the file, applies `sets` in order, then `grids` (values of fields of an array), and checks
/// what only the client can check: the dataset's paths and missing parts. The server checks
/// everything else. Errors list all problems, up to 16.
Result<SpecFile> read_spec_file(const std::filesystem::path& path,
                                std::span<const std::string> sets,
                                std::span<const std::string> grids = {});
/// Processes a text like the file of read_spec_file(); relative paths are relative to `folder`.
Result<SpecFile> parse_spec_file(std::string_view text, std::string name,
                                 const std::filesystem::path& folder,
                                 std::span<const std::string> sets,
                                 std::span<const std::string> grids = {});

/// Reads a file that only describes a dataset (DatasetFile), or a job file, from which it takes the
/// dataset. The second value is the file's folder.
Result<std::pair<v1::DatasetFile, std::filesystem::path>> read_dataset_file(
    const std::filesystem::path& path, std::span<const std::string> sets);

}  // namespace trainyard::client
