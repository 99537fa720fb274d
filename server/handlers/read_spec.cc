#include "server/handlers/read_spec.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "proto/spec/dataset_format.h"
#include "proto/spec/read.h"

namespace trainyard::server {
namespace {

using Request = v1::ReadSpecRequest;
using Response = v1::ReadSpecResponse;

constexpr int kOverridesMax = 1000;
constexpr int kLocateMax = 64;

Status check(const Request& request) {
  if (request.kind() == Request::KIND_UNSPECIFIED || !Request::Kind_IsValid(request.kind())) {
    return field_error("FIELD_REQUIRED", "kind",
                       "is missing, expected JOB, DATASET, MODEL or ARRAY");
  }
  const auto check_count = [](const char* field, int count, int most) -> Status {
    if (count <= most) return {};
    return field_error(
        "FIELD_OUT_OF_RANGE", field,
        "has " + std::to_string(count) + " items, expected at most " + std::to_string(most));
  };
  if (Status s = check_count("set", request.set_size(), kOverridesMax); !s.ok()) return s;
  if (Status s = check_count("grid", request.grid_size(), kOverridesMax); !s.ok()) return s;
  return check_count("locate", request.locate_size(), kLocateMax);
}

void add_file(std::string field, const std::string& path, Response& response) {
  v1::SpecFile& file = *response.add_files();
  file.set_field(std::move(field));
  file.set_path(path);
}

void set_dataset(const v1::DatasetFile& file, const std::string& prefix, Response& response) {
  if (!spec::brings_data(file)) return;
  *response.mutable_dataset() = spec::dataset_spec(file);
  response.set_dataset_id(file.name());
  const std::vector<spec::NamedSource> sources = spec::sources_of(file);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].on_server) continue;
    add_file(prefix + spec::file_field(sources[i].role), sources[i].path, response);
    v1::SpecFile& added = *response.mutable_files()->rbegin();
    added.set_source(static_cast<int>(i));
    added.set_may_be_folder(spec::format_of(file).about.folder());
  }
  if (const std::string& tokenizer = spec::tokenizer_path(file); !tokenizer.empty()) {
    add_file(prefix + spec::tokenizer_field(file), tokenizer, response);
  }
}

void set_job(const v1::JobFile& file, Response& response) {
  response.set_name(file.name());
  *response.mutable_spec() = spec::job_spec(file);
  if (file.has_array()) *response.mutable_array() = file.array();
  set_dataset(file.dataset(), "dataset.", response);
  if (!file.model().onnx().empty()) add_file("model.onnx", file.model().onnx(), response);
  if (!file.model().pretrained().empty()) {
    add_file("model.pretrained", file.model().pretrained(), response);
    response.mutable_files()->rbegin()->set_may_be_folder(true);
  }
  if (const std::string& adapter = file.recipe().lora().adapter(); !adapter.empty()) {
    add_file("recipe.lora.adapter", adapter, response);
    response.mutable_files()->rbegin()->set_may_be_folder(true);
  }
  if (spec::has_weights_file(file.recipe())) {
    add_file("recipe.initial_weights.path", file.recipe().initial_weights().path(), response);
  }
}

Response read(const Request& request, const spec::Document& document,
              std::vector<spec::Problem>& problems) {
  Response response;
  switch (request.kind()) {
    case Request::DATASET: {
      const v1::DatasetFile file = spec::read_dataset(document, problems);
      response.set_name(file.name());
      set_dataset(file, "", response);
      break;
    }
    case Request::MODEL:
      *response.mutable_model() = spec::read_model(document, problems);
      break;
    case Request::ARRAY:
      *response.mutable_array() = spec::read_array(document, problems);
      break;
    default:
      set_job(spec::read_job(document, problems), response);
      break;
  }
  return response;
}

}  // namespace

Result<Response> read_spec(const Request& request) {
  if (Status s = check(request); !s.ok()) return s.error();
  std::vector<spec::Problem> problems;
  const std::vector<std::string> sets(request.set().begin(), request.set().end());
  const std::vector<std::string> grids(request.grid().begin(), request.grid().end());
  const spec::Document document =
      spec::read_document(request.text(), request.name(), sets, grids, problems);
  Response response;
  if (problems.empty()) response = read(request, document, problems);
  const auto position = [&](const spec::Position& at) {
    const bool of_text = at.source == 0;
    return of_text && request.name().empty() ? "" : document.describe(at);
  };
  if (problems.empty()) {
    for (const std::string& field : request.locate()) {
      (*response.mutable_positions())[field] = position(document.locate(field));
    }
    return response;
  }
  response.Clear();
  response.set_problem_count(static_cast<int>(problems.size()));
  problems.resize(std::min(problems.size(), spec::kProblemsMax));
  for (const spec::Problem& problem : problems) {
    v1::SpecProblem& added = *response.add_problems();
    added.set_reason(problem.reason);
    added.set_field(problem.field);
    added.set_description(problem.description);
    added.set_position(position(problem.at));
  }
  return response;
}

}  // namespace trainyard::server
