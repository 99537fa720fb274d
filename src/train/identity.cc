#include "src/train/identity.h"

#include <algorithm>
#include <set>
#include <vector>

#include "src/base/files.h"
#include "src/base/sha256.h"
#include "src/models/spec_json.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kRule2 = "2:";
constexpr int64_t kDigestFileBytesMax = 4096;

std::string to_text(const Json& json) {
  // Names come from outside: bytes that are not UTF-8 must not become an exception.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A preset is written as in a spec file: {"mlp": {"hidden": [64]}}.
Json describe(const ModelSpec& model) {
  Json json = fields_to_json(model);
  if (model.preset.empty()) return json;
  json[model.preset] = std::move(json["parameters"]);
  json.erase("parameters");
  json.erase("preset");
  return json;
}

std::string shown(const Json& json) {
  constexpr size_t kShownMax = 80;
  if (json.is_null()) return "nothing";
  const std::string text = json.is_string() ? json.get<std::string>() : to_text(json);
  return text.size() <= kShownMax ? text : text.substr(0, kShownMax) + "...";
}

bool holds_objects(const Json& list) {
  return list.is_array() && std::ranges::any_of(list, &Json::is_object);
}

/// A null means a missing value.
void compare(const Json& recorded, const Json& job, const std::string& path,
             std::vector<FieldDifference>& differences) {
  const Json nothing;
  if (recorded.is_object() && job.is_object()) {
    std::set<std::string> names;
    for (const Json* side : {&recorded, &job}) {
      for (const auto& [name, value] : side->items()) names.insert(name);
    }
    const auto field = [&](const Json& object, const std::string& name) -> const Json& {
      const auto it = object.find(name);
      return it == object.end() ? nothing : *it;
    };
    for (const std::string& name : names) {
      compare(field(recorded, name), field(job, name), path.empty() ? name : path + "." + name,
              differences);
    }
  } else if (recorded.is_array() && job.is_array() &&
             (holds_objects(recorded) || holds_objects(job))) {
    for (size_t i = 0; i < std::max(recorded.size(), job.size()); ++i) {
      compare(i < recorded.size() ? recorded[i] : nothing, i < job.size() ? job[i] : nothing,
              path + "[" + std::to_string(i) + "]", differences);
    }
  } else if (recorded != job) {
    differences.push_back({path, shown(recorded), shown(job)});
  }
}

std::string listed(const std::vector<FieldDifference>& differences) {
  constexpr size_t kListedMax = 8;
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kListedMax); ++i) {
    const FieldDifference& d = differences[i];
    text += (i > 0 ? "; " : "") + d.field + ": the checkpoint has " + d.recorded +
            ", the job has " + d.job;
  }
  if (differences.size() > kListedMax) {
    text += "; and " + std::to_string(differences.size() - kListedMax) + " more";
  }
  return text;
}

}  // namespace

RunRecord record_of(const CheckpointState& state) {
  const Json json = Json::parse(state.extra_json, nullptr, /*allow_exceptions=*/false);
  RunRecord record{state.job_digest, ""};
  if (json.is_object() && json.contains("run") && json["run"].is_string()) {
    record.description = json["run"].get<std::string>();
  }
  return record;
}

RunIdentity::RunIdentity(const ModelSpec& model, const Recipe& recipe,
                         const std::string& dataset_digest)
    : digest_by_rule_1_(trainyard::digest_by_rule_1(model, recipe, dataset_digest)) {
  record_.description = to_text({{"dataset", dataset_digest},
                                 {"model", describe(model)},
                                 {"recipe", fields_to_json(recipe)}});
  record_.digest = std::string(kRule2) + sha256_hex(record_.description);
}

Result<RunIdentity> RunIdentity::of(const TrainJob& job) {
  ASSIGN_OR_RETURN(const std::string dataset,
                   read_file(job.dataset / "digest", kDigestFileBytesMax));
  return RunIdentity(job.model, job.recipe, dataset);
}

Result<std::vector<FieldDifference>> RunIdentity::differences(const RunRecord& recorded) const {
  const auto untold = [](std::string why) {
    return make_error(ErrorCode::kFailedPrecondition, "CHECKPOINT_FOREIGN", std::move(why));
  };
  if (is_rule_1(recorded)) {
    if (recorded.digest == digest_by_rule_1_) return std::vector<FieldDifference>();
    return untold(
        "another model, recipe or dataset (written by an earlier version, which did not record "
        "more)");
  }
  if (recorded.digest == record_.digest) return std::vector<FieldDifference>();
  if (!recorded.digest.starts_with(kRule2)) return untold("written by a later version");
  Json theirs = Json::parse(recorded.description, nullptr, /*allow_exceptions=*/false);
  if (!theirs.is_object() || !theirs["recipe"].is_object()) {
    return untold("its description is unreadable");
  }
  // A field that came later had its default.
  Json recipe = fields_to_json(Recipe());
  recipe.update(theirs["recipe"], /*merge_objects=*/true);
  theirs["recipe"] = std::move(recipe);
  std::vector<FieldDifference> found;
  compare(theirs, Json::parse(record_.description), "", found);
  return found;
}

std::string RunIdentity::difference(const RunRecord& recorded) const {
  const auto found = differences(recorded);
  return found.ok() ? listed(*found) : found.error().message;
}

bool is_rule_1(const RunRecord& recorded) { return recorded.digest.find(':') == std::string::npos; }

}  // namespace trainyard
