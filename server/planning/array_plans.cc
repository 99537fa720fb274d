#include "server/planning/array_plans.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "server/rpc/status.h"
#include "src/base/join.h"
#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/job/recipe.h"

namespace trainyard::server {
namespace {

using Json = nlohmann::json;
using Member = std::vector<MemberValue>;

constexpr size_t kValuesShown = 4;

/// Returns the part of a value on which a plan may depend.
std::string trait_of(const MemberValue& value) {
  const std::string& path = value.field->path();
  if (value.field->root() == "labels") return path;
  if (!is_neutral(path)) return path + "=" + value.json;
  const Json json = Json::parse(value.json);
  if (!json.is_number() || json == 0 || json == 1) return path + "=" + json.dump();
  return path;
}

/// Returns the key of a plan, which members with the same key share.
std::string shape_key(const Member& member) {
  std::string key;
  for (const MemberValue& value : member) key += trait_of(value) + "\n";
  return key;
}

/// Returns a text such as "recipe.seed: 3, recipe.optimizer.learning_rate: 0.1".
std::string values_text(const Member& member) {
  std::string text;
  for (size_t i = 0; i < member.size() && i < kValuesShown; ++i) {
    std::string json = member[i].json;
    if (json.size() > 64) json = json.substr(0, 64) + "...";
    text += (i > 0 ? ", " : "") + member[i].field->path() + ": " + json;
  }
  return text + (member.size() > kValuesShown ? ", ..." : "");
}

/// Adds to an error which member it concerns and where the member's value was given.
Error of_member(Error error, const Member& member, size_t index) {
  error.metadata["member"] = std::to_string(index);
  error.message =
      "member " + std::to_string(index) + " (" + values_text(member) + "): " + error.message;
  for (FieldViolation& violation : error.violations) {
    std::string_view field = violation.field;
    if (field.starts_with("spec.")) field.remove_prefix(5);
    const auto given = std::ranges::find_if(member, [&](const MemberValue& value) {
      const std::string& path = value.field->path();
      return field.starts_with(path) || path.starts_with(field);
    });
    if (given != member.end()) violation.field = given->where;
  }
  return error;
}

Status set_values(v1::JobSpec& spec, const Member& member, bool neutral_alone) {
  for (const MemberValue& value : member) {
    const bool neutral = value.field->root() == "labels" || is_neutral(value.field->path());
    if (neutral_alone && !neutral) continue;
    if (Status s = value.field->set(spec, value.json, value.where); !s.ok()) return s;
  }
  return {};
}

Status check_shapes(const ArrayMembers& array) {
  std::set<std::string> keys;
  for (const Member& member : array.members) keys.insert(shape_key(member));
  if (keys.size() <= kArrayPlansMax) return {};
  std::vector<std::string> paths;
  for (const SpecField& field : array.fields) {
    if (field.root() != "labels" && !is_neutral(field.path())) paths.push_back(field.path());
  }
  return make_error(ErrorCode::kInvalidArgument, "ARRAY_PLANS_TOO_MANY",
                    "array: its members differ in fields that a job's plan depends on (" +
                        joined(paths, " and ") + "): " + std::to_string(keys.size()) +
                        " plans, expected at most " + std::to_string(kArrayPlansMax) +
                        "; give these fields fewer values, or submit several arrays. Members that "
                        "differ in rates, momentum, decay, seed, priority or labels share a plan");
}

MemberShape shape_of(const PlannedJob& planned) {
  MemberShape shape;
  shape.plan = planned.plan.SerializeAsString();
  shape.dataset = planned.dataset;
  shape.dataset_project = planned.dataset_project;
  shape.initial_model_id = planned.initial_model_id;
  shape.initial_model_project = planned.initial_model_project;
  shape.brief.resources = planned.spec.resources();
  set_needs(planned.plan, {}, 0, shape.brief);
  return shape;
}

class Planning {
 public:
  Planning(JobPlanner& planner, const Clock& clock, const std::string& project,
           const v1::JobSpec& spec, const std::stop_token& stop)
      : planner_(planner),
        clock_(clock),
        project_(project),
        base_(spec),
        stop_(stop),
        begin_us_(clock.steady_us()) {}

  Status add(const Member& values, PlannedArray& out) {
    if (Status s = check_stop(stop_); !s.ok()) return s;
    const size_t index = out.members.size();
    v1::JobSpec spec = base_;
    if (Status s = set_values(spec, values, /*neutral_alone=*/false); !s.ok()) {
      return of_member(s.error(), values, index);
    }
    auto [shape, fresh] = shapes_.try_emplace(shape_key(values));
    if (fresh) {
      if (Status s = plan(spec, values, index, out); !s.ok()) return s;
      shape->second = out.shapes.size() - 1;
    } else if (Status s = planner_.check_like(spec, schema_); !s.ok()) {
      return of_member(s.error(), values, index);
    }
    // The accepted spec contains the choices that make the job fit.
    v1::JobSpec accepted = accepted_[shape->second];
    if (Status s = set_values(accepted, values, /*neutral_alone=*/true); !s.ok()) return s;
    NewMember& member = out.members.emplace_back();
    member.shape = shape->second;
    member.priority = accepted.priority();
    member.spec = accepted.SerializeAsString();
    v1::ArrayMember given;
    for (const MemberValue& value : values) {
      (*given.mutable_values())[value.field->path()] = value.json;
    }
    member.values = given.SerializeAsString();
    return {};
  }

 private:
  Status plan(const v1::JobSpec& spec, const Member& values, size_t index, PlannedArray& out) {
    if (clock_.steady_us() - begin_us_ > kArrayPlanningUs) {
      return make_error(
          ErrorCode::kInvalidArgument, "ARRAY_PLANS_TOO_MANY",
          "array: its members need more plans than can be made in 30 s (" +
              std::to_string(out.shapes.size()) +
              " were made); give the fields that a plan depends on fewer values, or submit "
              "several arrays");
    }
    Result<PlannedJob> planned = planner_.plan(project_, spec, stop_);
    if (!planned.ok()) {
      if (planned.error().reason == kStopped) return planned.error();
      return of_member(std::move(planned).error(), values, index);
    }
    if (out.shapes.empty()) {
      ASSIGN_OR_RETURN(schema_, planner_.schema_of(planned->dataset_digest));
      // All members use this version of the dataset, even if another one is uploaded in the
      // meantime.
      base_.mutable_dataset()->set_name(planned->spec.dataset().name());
      out.first = *planned;
    }
    out.shapes.push_back(shape_of(*planned));
    accepted_.push_back(std::move(planned->spec));
    return {};
  }

  JobPlanner& planner_;
  const Clock& clock_;
  const std::string& project_;
  v1::JobSpec base_;
  const std::stop_token& stop_;
  const int64_t begin_us_;
  DatasetSchema schema_;
  std::unordered_map<std::string, size_t> shapes_;
  std::vector<v1::JobSpec> accepted_;  // indexed by shape
};

}  // namespace

bool is_neutral(std::string_view path) {
  static const std::vector<std::string> fields = [] {
    std::vector<std::string> all = recipe_fields_with(kPlanIgnores);
    all.insert(all.end(), {"recipe.early_stopping.min_delta", "priority"});
    return all;
  }();
  return std::ranges::find(fields, path) != fields.end();
}

Result<PlannedArray> plan_array(JobPlanner& planner, const Clock& clock, const std::string& project,
                                const v1::JobSpec& spec, const ArrayMembers& array,
                                const std::stop_token& stop) {
  if (Status s = check_shapes(array); !s.ok()) return s.error();
  PlannedArray out;
  Planning planning(planner, clock, project, spec, stop);
  int64_t bytes = 0;
  for (const Member& member : array.members) {
    if (Status s = planning.add(member, out); !s.ok()) return s.error();
    bytes += std::ssize(out.members.back().spec) + std::ssize(out.members.back().values);
    if (bytes > kArrayBytesMax) {
      return field_error("ARRAY_SIZE_INVALID", "array",
                         std::to_string(array.members.size()) +
                             " members have specs of more than " + human_bytes(kArrayBytesMax) +
                             ", the maximum of an array; submit several arrays");
    }
  }
  return out;
}

}  // namespace trainyard::server
