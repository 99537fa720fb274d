#include "client/lib/spec_file.h"

#include <iostream>

#include "proto/spec/read.h"
#include "src/base/files.h"

namespace trainyard::client {
namespace {

Result<std::string> read_text(const std::filesystem::path& path) {
  std::string text;
  if (path == "-") {
    char buffer[65536];
    while (text.size() <= static_cast<size_t>(spec::kBytesMax) &&
           (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0)) {
      text.append(buffer, static_cast<size_t>(std::cin.gcount()));
    }
    return text;
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return make_error(ErrorCode::kInvalidArgument, "SPEC_MALFORMED",
                      path.string() + " is a folder, expected a spec file");
  }
  return read_file(path, spec::kBytesMax);
}

std::string name_of(const std::filesystem::path& path) {
  return path == "-" ? "standard input" : path.string();
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path == "-" ? std::filesystem::path() : path.parent_path();
}

}  // namespace

std::filesystem::path SpecFile::weights_path() const {
  if (!imported_weights.empty()) return imported_weights;
  return folder / file.recipe().initial_weights().path();
}

Status SpecFile::check_single(std::string_view command) const {
  if (!file.has_array()) return {};
  if (document.root().find("array") == nullptr) {  // the reader made it from the folds
    return document.to_error(
        {{document.locate("recipe.split"), "FIELD_REQUIRED", "recipe.split.fold",
          "is missing: '" + std::string(command) + "' is for one job, which holds out one of the " +
              std::to_string(file.recipe().split().folds()) +
              " folds (--set recipe.split.fold=1); 'trainyard submit' makes an array of all"}});
  }
  return document.to_error(
      {{document.locate("array"), "FIELD_UNSUPPORTED", "array",
        "'" + std::string(command) + "' is for one job; 'trainyard submit' takes arrays"}});
}

void SpecFile::set_name(const std::string& name) {
  file.set_name(name);
  document.set_name(name);
}

Error with_user_field_names(Error error, const std::string& name) {
  // The message begins with the field's name.
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
  error = with_user_field_names(std::move(error));
  if (error.violations.size() == 1) {
    // The server's message is kept, because it may say more than the field, such as the name of a
    // layer.
    const std::string& field = error.violations.front().field;
    const spec::Position at = document.locate(field);
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

Result<spec::Document> read_document_file(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return spec::Document::parse(text, name_of(path));
}

Result<SpecFile> read_spec_file(const std::filesystem::path& path,
                                std::span<const std::string> sets,
                                std::span<const std::string> grids) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return parse_spec_file(text, name_of(path), folder_of(path), sets, grids);
}

Result<SpecFile> parse_spec_file(std::string_view text, std::string name,
                                 const std::filesystem::path& folder,
                                 std::span<const std::string> sets,
                                 std::span<const std::string> grids) {
  std::vector<spec::Problem> problems;
  SpecFile file;
  file.folder = folder;
  file.document = spec::read_document(text, std::move(name), sets, grids, problems);
  if (problems.empty()) file.file = spec::read_job(file.document, problems);
  if (!problems.empty()) return file.document.to_error(problems);
  return file;
}

Result<std::pair<v1::DatasetFile, std::filesystem::path>> read_dataset_file(
    const std::filesystem::path& path, std::span<const std::string> sets) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  std::vector<spec::Problem> problems;
  const spec::Document document = spec::read_document(text, name_of(path), sets, {}, problems);
  v1::DatasetFile dataset;
  if (problems.empty()) dataset = spec::read_dataset(document, problems);
  if (!problems.empty()) return document.to_error(problems);
  return std::pair(std::move(dataset), folder_of(path));
}

}  // namespace trainyard::client
