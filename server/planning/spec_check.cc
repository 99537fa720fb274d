#include "server/planning/spec_check.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/people/people.h"
#include "server/rpc/names.h"
#include "src/base/safe_text.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr int kLabelsMax = 32;
constexpr int kDependenciesMax = 64;
constexpr size_t kLabelKeyMax = 63;
constexpr size_t kLabelValueMax = 256;

/// Returns whether the text has control characters, C1's and those that reorder a line among them.
bool has_control(std::string_view text) { return safe_text(text) != text; }

/// Returns a model of another project. `job`: the one of the job of that name. MODEL_NOT_FOUND,
/// with the same message whether it does not exist or is not shared.
Result<std::optional<Model>> find_shared_weights(const JobScope& scope, const ResourceName& name,
                                                 bool job, const std::string& field,
                                                 const std::string& text) {
  if (scope.may_use(name.project, "models", name.id)) {
    Result<Model> model = scope.store.models().find(name.project, name.id);
    if (model.ok() && !(job && model->weights_alone())) {
      return std::optional<Model>(std::move(*model));
    }
    if (!model.ok() && model.error().reason != "MODEL_NOT_FOUND") return model.error();
  }
  return make_error(ErrorCode::kNotFound, "MODEL_NOT_FOUND",
                    field + ": there is no " + (job ? "job " : "model ") + quoted_value(text) +
                        (job ? " whose model" : " that") + " is shared with projects/" +
                        scope.project + ".");
}

}  // namespace

void check_labels(const v1::JobSpec& spec, Violations& violations) {
  if (spec.labels_size() > kLabelsMax) {
    violations.add("LABEL_INVALID", "labels",
                   std::to_string(spec.labels_size()) + " labels, expected at most " +
                       std::to_string(kLabelsMax));
  }
  for (const auto& [key, value] : spec.labels()) {
    if (key.empty() || key.size() > kLabelKeyMax || has_control(key)) {
      violations.add(
          "LABEL_INVALID", "labels",
          "the key " + quoted_value(key) +
              " is out of range, expected 1 to 63 characters without control characters");
    } else if (value.size() > kLabelValueMax || has_control(value)) {
      violations.add(
          "LABEL_INVALID", "labels[" + key + "]",
          "the value is out of range, expected at most 256 characters without control characters");
    }
  }
}

std::vector<Dependency> read_after(const std::string& project, v1::JobSpec& spec,
                                   Violations& violations) {
  std::vector<Dependency> after;
  if (spec.after_size() > kDependenciesMax) {
    violations.add("FIELD_OUT_OF_RANGE", "after",
                   std::to_string(spec.after_size()) + " jobs, expected at most " +
                       std::to_string(kDependenciesMax));
    return after;
  }
  for (int i = 0; i < spec.after_size(); ++i) {
    v1::JobDependency& dependency = *spec.mutable_after(i);
    const std::string field = "after[" + std::to_string(i) + "]";
    if (!v1::JobDependency::On_IsValid(dependency.on())) {
      violations.add("FIELD_UNSUPPORTED", field + ".on",
                     std::to_string(dependency.on()) + " is not known, expected success or any");
    }
    const Result<ResourceName> name =
        parse_id_or_name(Collection::kJobs, project, field + ".job", dependency.job());
    if (!name.ok()) {
      violations.add(name.error());
    } else if (name->project != project) {
      violations.add("FIELD_UNSUPPORTED", field + ".job",
                     quoted_value(dependency.job()) +
                         " is of another project, expected a job of projects/" + project);
    } else if (std::ranges::find(after, name->id, &Dependency::id) != after.end()) {
      violations.add("FIELD_CONFLICT", field + ".job",
                     name->id + " is given twice, expected it once");
    } else {
      after.push_back({name->id, dependency.on() == v1::JobDependency::ANY});
      dependency.set_job(full_name(project, Collection::kJobs, name->id));
    }
  }
  return after;
}

bool JobScope::may_use(std::string_view of_project, std::string_view collection,
                       std::string_view id) const {
  return of_project == project || people.is_shared(of_project, collection, id, project);
}

Result<Dataset> find_dataset(const JobScope& scope, const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(const DatasetName name,
                   parse_dataset_id_or_name(scope.project, "dataset.name", spec.dataset().name()));
  const auto unknown = [&] {
    return make_error(ErrorCode::kNotFound, "DATASET_NOT_FOUND",
                      "there is no dataset " + quoted_value(spec.dataset().name()) +
                          " that is shared with projects/" + scope.project + ".");
  };
  const bool is_own = name.project == scope.project;
  // Memory is asked before the store, so that not even the time tells whether the dataset exists.
  if (!is_own && !scope.people.has_shares(name.project, "datasets", name.ref.id)) return unknown();
  Result<Dataset> dataset = scope.store.datasets().find_usable(name.project, name.ref);
  if (is_own) return dataset;
  // A share may be of one version, so the version that the job would use decides.
  const std::string version = dataset.ok() ? dataset->ref().text() : name.ref.text();
  if (!scope.may_use(name.project, "datasets", version)) return unknown();
  return dataset;
}

Result<std::optional<Model>> find_initial_weights(const JobScope& scope, const v1::JobSpec& spec,
                                                  const std::vector<Dependency>& after,
                                                  std::string* pending_id) {
  if (!spec.recipe().has_initial_weights()) return std::optional<Model>();
  const v1::InitialWeights& weights = spec.recipe().initial_weights();
  if (!weights.path().empty()) {
    return field_error("FIELD_UNSUPPORTED", "recipe.initial_weights.path",
                       "only the client accepts a path; upload the file and name the model");
  }
  const bool job = !weights.job().empty();
  const std::string field = std::string("recipe.initial_weights.") + (job ? "job" : "model");
  const std::string& text = job ? weights.job() : weights.model();
  ASSIGN_OR_RETURN(
      const ResourceName name,
      parse_id_or_name(job ? Collection::kJobs : Collection::kModels, scope.project, field, text));
  const std::string& id = name.id;
  if (name.project != scope.project) return find_shared_weights(scope, name, job, field, text);
  // Read the job's state before searching for the model: a job that has ended creates no model any
  // more.
  const auto awaited = std::ranges::find(after, id, &Dependency::id);
  bool unfinished = false;
  if (awaited != after.end()) {
    ASSIGN_OR_RETURN(const Job maker, scope.store.jobs().find(scope.project, id));
    unfinished = !is_terminal(maker.state);
  }
  Result<Model> model = scope.store.models().find(scope.project, id);
  if (model.ok() && !(job && model->weights_alone())) {
    return std::optional<Model>(std::move(*model));
  }
  if (!model.ok() && model.error().reason != "MODEL_NOT_FOUND") return model.error();
  if (!model.ok() && unfinished) {
    if (awaited->any_end) {
      return field_error("FIELD_CONFLICT", field,
                         id + " creates its model when it succeeds, but `after` waits for any end "
                              "of it, expected on: success");
    }
    *pending_id = id;
    return std::optional<Model>();
  }
  return make_error(
      ErrorCode::kNotFound, "MODEL_NOT_FOUND",
      field + ": there is no " +
          (model.ok()
               ? "job " + id + "; the model of that name has weights only, use model: " + id
               : "model " + id +
                     (awaited != after.end() ? "; the job of that name has ended and has no model"
                      : job ? "; a job has one once it has SUCCEEDED; to wait for that, name "
                              "it in `after` too"
                            : "")));
}

}  // namespace trainyard::server
