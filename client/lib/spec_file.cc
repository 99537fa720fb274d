#include "client/lib/spec_file.h"

#include "client/lib/dataset_format.h"
#include "client/lib/spec_message.h"

namespace trainyard::client {
namespace {

Result<SpecFile> finish_spec_file(SpecDocument document, const std::filesystem::path& folder,
                                  std::span<const std::string> sets,
                                  std::span<const std::string> grids = {}) {
  SpecFile spec;
  spec.folder = folder;
  for (const std::string& assignment : sets) {
    if (Status set = document.set(assignment); !set.ok()) return std::move(set).error();
  }
  for (const std::string& assignment : grids) {
    if (Status set = document.add_to_grid(assignment); !set.ok()) return std::move(set).error();
  }
  std::vector<SpecProblem> problems;
  read_spec_message(document.root(), "", spec.file, problems);
  for (const auto& [field, says] : required_fields(*v1::JobFile::descriptor())) {
    if (document.root().find(field->name()) != nullptr) continue;
    problems.push_back({document.root().at, "FIELD_REQUIRED", field->name(), says});
  }
  if (spec.file.has_dataset())
    check_dataset_file(spec.file.dataset(), "dataset", &document, problems);
  if (!problems.empty()) return document.to_error(problems);
  spec.document = std::move(document);
  return spec;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path == "-" ? std::filesystem::path() : path.parent_path();
}

}  // namespace

v1::JobSpec SpecFile::job_spec() const {
  v1::JobSpec spec;
  if (!has_data()) spec.mutable_dataset()->set_name(file.dataset().name());
  *spec.mutable_model() = file.model();
  *spec.mutable_recipe() = file.recipe();
  if (file.has_resources()) *spec.mutable_resources() = file.resources();
  spec.set_priority(file.priority());
  *spec.mutable_labels() = file.labels();
  *spec.mutable_after() = file.after();
  return spec;
}

bool SpecFile::has_data() const { return brings_data(file.dataset()); }

bool SpecFile::has_weights() const {
  const v1::InitialWeights& weights = file.recipe().initial_weights();
  return !weights.path().empty() && weights.job().empty() && weights.model().empty();
}

std::filesystem::path SpecFile::weights_path() const {
  if (!imported_weights.empty()) return imported_weights;
  return folder / file.recipe().initial_weights().path();
}

Status SpecFile::check_single(std::string_view command) const {
  if (!file.has_array()) return {};
  return document.to_error(
      {{document.locate("array"), "FIELD_UNSUPPORTED", "array",
        "'" + std::string(command) + "' is for one job; 'trainyard submit' takes arrays"}});
}

void SpecFile::set_name(const std::string& name) {
  file.set_name(name);
  document.set_name(name);
}

Error with_names_of_people(Error error, const std::string& name) {
  // A sentence about a field begins with it.
  const auto rename = [&](std::string& text) {
    if (text.starts_with("spec.")) text.erase(0, 5);
    for (const std::string_view id : {"job_id", "array_id"}) {
      const std::string_view rest = std::string_view(text).substr(std::min(id.size(), text.size()));
      if (text.starts_with(id) && (rest.empty() || rest.starts_with(':'))) {
        text.replace(0, id.size(), name);
        return;
      }
    }
  };
  rename(error.message);
  for (FieldViolation& violation : error.violations) rename(violation.field);
  return error;
}

Error SpecFile::with_positions(Error error) const {
  error = with_names_of_people(std::move(error));
  if (error.violations.size() == 1) {
    // The server's sentence stays: it may say more than its field, such as the name of a layer.
    const std::string& field = error.violations.front().field;
    const SpecPosition at = document.locate(field);
    const std::string named = document.describe(at, field);
    if (named == document.describe(at) && error.message.starts_with(field + ": ")) {
      error.message.replace(0, field.size(), named);
    } else {
      error.message = document.describe(at) + ": " + error.message;
    }
  } else if (error.violations.size() > 1) {
    error.message = document.describe({0, 0, 0}) + " has " +
                    std::to_string(error.violations.size()) + " problems";
  }
  for (FieldViolation& violation : error.violations) {
    violation.field = document.describe(document.locate(violation.field), violation.field);
  }
  return error;
}

Result<SpecFile> read_spec_file(const std::filesystem::path& path,
                                std::span<const std::string> sets,
                                std::span<const std::string> grids) {
  ASSIGN_OR_RETURN(SpecDocument document, SpecDocument::read(path));
  return finish_spec_file(std::move(document), folder_of(path), sets, grids);
}

Result<SpecFile> parse_spec_file(std::string_view text, std::string name,
                                 const std::filesystem::path& folder,
                                 std::span<const std::string> sets) {
  ASSIGN_OR_RETURN(SpecDocument document, SpecDocument::parse(text, std::move(name)));
  return finish_spec_file(std::move(document), folder, sets);
}

Result<std::pair<v1::DatasetFile, std::filesystem::path>> read_dataset_file(
    const std::filesystem::path& path, std::span<const std::string> sets) {
  ASSIGN_OR_RETURN(SpecDocument document, SpecDocument::read(path));
  for (const std::string& assignment : sets) {
    if (Status set = document.set(assignment); !set.ok()) return std::move(set).error();
  }
  std::vector<SpecProblem> problems;
  v1::DatasetFile dataset;
  std::string prefix;
  if (document.root().find("model") != nullptr || document.root().find("dataset") != nullptr) {
    v1::JobFile job;
    read_spec_message(document.root(), "", job, problems);
    dataset = job.dataset();
    prefix = "dataset";
  } else {
    read_spec_message(document.root(), "", dataset, problems);
  }
  check_dataset_file(dataset, prefix, &document, problems);
  if (!problems.empty()) return document.to_error(problems);
  return std::pair(std::move(dataset), folder_of(path));
}

}  // namespace trainyard::client
