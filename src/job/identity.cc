#include "src/job/identity.h"

#include <algorithm>
#include <set>
#include <vector>

#include "src/base/files.h"
#include "src/base/sha256.h"
#include "src/models/blocks.h"
#include "src/models/layer.h"
#include "src/models/loss.h"
#include "src/models/spec_json.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kRule = "1:";
constexpr int64_t kDigestFileBytesMax = 4096;

std::string to_text(const Json& json) {
  // Users choose the names in it, so bytes that are not UTF-8 must not throw an exception.
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

bool contains_objects(const Json& list) {
  return list.is_array() && std::ranges::any_of(list, &Json::is_object);
}

/// Changes a record's {"op": "Conv", "attributes": {...}} to {"conv": {...}}, the form of spec
/// files.
void name_layer(Json& layer) {
  if (!layer.is_object() || !layer["op"].is_string()) return;
  const std::string op = layer["op"].get<std::string>();
  Json attributes = std::move(layer["attributes"]);
  if (op == kUseOp) {
    Json& use = layer["use"] = {{"with", std::move(attributes)}};
    for (const char* name : {"block", "repeat"}) {
      if (layer.contains(name)) use[name] = std::move(layer[name]);
      layer.erase(name);
    }
  } else if (const LayerKind* kind = find_layer_kind(op); kind != nullptr) {
    layer[std::string(kind->field)] = std::move(attributes);
  } else {
    layer["attributes"] = std::move(attributes);
    return;
  }
  layer.erase("op");
  layer.erase("attributes");
}

/// Changes "HuberLoss" and {"op": "HuberLoss", "attributes": {...}} to {"huber": {...}}.
void name_loss(Json& loss) {
  const Json op = loss.is_object() ? loss.value("op", Json()) : loss;
  if (!op.is_string()) return;
  const LossKind* kind = find_loss_kind(op.get<std::string>());
  if (kind == nullptr) return;
  Json attributes = loss.is_object() ? loss.value("attributes", Json::object()) : Json::object();
  loss = Json::object();
  loss[std::string(kind->field)] = std::move(attributes);
}

/// Brings a recorded model into the form of spec files, so that its fields have the names that
/// users know.
void name_fields(Json& model) {
  if (!model.is_object()) return;
  const auto name_layers = [](Json& owner) {
    if (!owner.is_object() || !owner.contains("layers")) return;
    for (Json& layer : owner["layers"]) name_layer(layer);
  };
  name_layers(model);
  if (model.contains("blocks")) {
    for (Json& block : model["blocks"]) name_layers(block);
  }
  name_loss(model["loss"]);
}

/// A model without a loss has the default loss of its dataset's target. That is softmax
/// cross-entropy if `other`, a model for the same dataset, has this loss; then it is set
/// explicitly.
void name_default_loss(Json& model, const Json& other) {
  constexpr const char* kDefault = "softmax_cross_entropy";
  if (!model.is_object() || !other.is_object() || !model["loss"].is_null()) return;
  const auto named = other.find("loss");
  if (named == other.end() || !named->is_object() || !named->contains(kDefault)) return;
  model["loss"] = {{kDefault, Json::object()}};
}

/// Appends the fields in which two values differ. A null stands for a missing value.
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
             (contains_objects(recorded) || contains_objects(job))) {
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
                         const std::string& dataset_digest) {
  record_.description = to_text({{"arithmetic", kArithmetic},
                                 {"dataset", dataset_digest},
                                 {"model", describe(model)},
                                 {"recipe", fields_to_json(recipe)}});
  record_.digest = std::string(kRule) + sha256_hex(record_.description);
}

Result<RunIdentity> RunIdentity::of(const TrainJob& job) {
  ASSIGN_OR_RETURN(const std::string dataset,
                   read_file(job.dataset / "digest", kDigestFileBytesMax));
  return RunIdentity(job.model, job.recipe, dataset);
}

Result<std::vector<FieldDifference>> RunIdentity::differences(const RunRecord& recorded) const {
  const auto foreign = [](std::string why) {
    return make_error(ErrorCode::kFailedPrecondition, "CHECKPOINT_FOREIGN", std::move(why));
  };
  if (recorded.digest == record_.digest) return std::vector<FieldDifference>();
  if (!recorded.digest.starts_with(kRule)) return foreign("written by another version");
  Json theirs = Json::parse(recorded.description, nullptr, /*allow_exceptions=*/false);
  if (!theirs.is_object() || !theirs["recipe"].is_object()) {
    return foreign("its description is unreadable");
  }
  // A field that did not exist when the record was written had its default value.
  Json recipe = fields_to_json(Recipe());
  recipe.update(theirs["recipe"], /*merge_objects=*/true);
  theirs["recipe"] = std::move(recipe);
  Json ours = Json::parse(record_.description);
  Json &their_model = theirs["model"], &our_model = ours["model"];
  name_fields(their_model);
  name_fields(our_model);
  if (theirs["dataset"] == ours["dataset"]) {
    name_default_loss(their_model, our_model);
    name_default_loss(our_model, their_model);
  }
  std::vector<FieldDifference> found;
  compare(theirs, ours, "", found);
  return found;
}

bool RunIdentity::is_in_another_arithmetic(const RunRecord& recorded) const {
  const auto found = differences(recorded);
  return found.ok() && found->size() == 1 && found->front().field == "arithmetic";
}

std::string RunIdentity::difference(const RunRecord& recorded) const {
  const auto found = differences(recorded);
  return found.ok() ? listed(*found) : found.error().message;
}

}  // namespace trainyard
