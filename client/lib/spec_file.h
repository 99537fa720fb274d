// client/lib/spec_file.h: a job spec file: from the path that a user types to a checked JobFile.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "proto/spec/dataset_format.h"
#include "proto/spec/read.h"
#include "trainyard/v1/job_spec.pb.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::client {

/// The server's refusal with the field that people know: `name` where it has a request's job_id or
/// array_id, and no `spec.`.
Error with_names_of_people(Error error, const std::string& name = "name");

struct SpecFile {
  spec::Document document;
  v1::JobFile file;
  std::filesystem::path folder;  // paths in the file are relative to it
  // Of model.onnx, once it is imported: the file that recipe.initial_weights.path stands for.
  std::filesystem::path imported_weights = {};

  v1::JobSpec job_spec() const { return spec::job_spec(file); }
  /// True if the file provides data: the client then uploads before it submits.
  bool has_data() const { return spec::brings_data(file.dataset()); }
  bool has_weights() const { return spec::has_weights_file(file.recipe()); }
  /// The path of the weights' file, for a job that has_weights().
  std::filesystem::path weights_path() const;
  /// Refuses an array, for a command that is for one job.
  Status check_single(std::string_view command) const;
  /// What --name says, in place of the file's name.
  void set_name(const std::string& name);
  /// The server's refusal, with this file's line and column, or the option, before each field that
  /// it names.
  Error with_positions(Error error) const;
};

/// A YAML or JSON file; "-" is standard input.
Result<spec::Document> read_document_file(const std::filesystem::path& path);

/// Reads, applies `sets` in order, then `grids` (values of fields of an array), maps and checks
/// what only the client can check (the dataset's paths; missing parts). The server checks
/// everything else. Errors list all problems, up to 16.
Result<SpecFile> read_spec_file(const std::filesystem::path& path,
                                std::span<const std::string> sets,
                                std::span<const std::string> grids = {});
/// The same for a text; `folder` is where relative paths begin.
Result<SpecFile> parse_spec_file(std::string_view text, std::string name,
                                 const std::filesystem::path& folder,
                                 std::span<const std::string> sets,
                                 std::span<const std::string> grids = {});

/// A file that only describes a dataset (DatasetFile), or a job file, whose dataset is taken.
Result<std::pair<v1::DatasetFile, std::filesystem::path>> read_dataset_file(
    const std::filesystem::path& path, std::span<const std::string> sets);

}  // namespace trainyard::client
