#include "src/job/fork.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/violations.h"
#include "src/job/identity.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// The fields that a fork may change in addition to those whose row has the trait kForks
// (src/job/recipe.h), each with all fields below it. docs/job_spec.md has this table.
constexpr std::array kMayChange = {
    "arithmetic",          "recipe.schedule.milestones",
    "recipe.keep_best",    "recipe.early_stopping",
    "recipe.augmentation", "recipe.lora.dropout",
};

bool is_below(std::string_view field, std::string_view root) {
  return field.starts_with(root) &&
         (field.size() == root.size() || field[root.size()] == '.' || field[root.size()] == '[');
}

/// Returns true for a setting of a preset, a layer or a loss that has no state: "dropout", the
/// "ratio" of a dropout layer, "label_smoothing". False for a whole dropout layer
/// ("model.layers[3].dropout"), which a fork may neither add nor remove.
bool is_regularization(std::string_view field) {
  if (!field.starts_with("model.")) return false;
  if (field.starts_with("model.loss.")) return field.ends_with(".label_smoothing");
  return field.ends_with(".dropout.ratio") ||
         (field.ends_with("dropout") && !field.ends_with("].dropout"));
}

bool is_one_of(std::string_view field, FieldTrait trait) {
  const std::vector<std::string> fields = recipe_fields_with(trait);
  return std::ranges::find(fields, field) != fields.end();
}

bool may_change(const FieldDifference& d) {
  const auto holds = [&](std::string_view root) { return is_below(d.field, root); };
  if (std::ranges::any_of(kMayChange, holds) || is_regularization(d.field)) return true;
  // The fields of a parameter group that have no state of their own.
  if (d.field.starts_with("recipe.parameter_groups[")) {
    return d.field.ends_with(".learning_rate_factor") || d.field.ends_with(".weight_decay");
  }
  if (is_one_of(d.field, kForks)) return true;
  return is_one_of(d.field, kForksAboveZero) && Json::parse(d.recorded) > 0 &&
         Json::parse(d.job) > 0;
}

Error refused(const std::vector<FieldDifference>& differences) {
  Violations violations;
  for (const FieldDifference& d : differences) {
    if (d.field == "dataset") {
      violations.add("FORK_CHANGE_UNSUPPORTED", "spec.dataset",
                     "differs from the checkpoint's; a fork keeps the data");
    } else {
      violations.add("FORK_CHANGE_UNSUPPORTED", "spec." + d.field,
                     d.job + " is not the checkpoint's " + d.recorded +
                         "; a fork keeps the model, the data, the seed and whatever has state");
    }
  }
  return violations.to_error();
}

/// Returns the training loop's state `extra` for a run with these differences: the state of
/// keep_best and early_stopping is reset where it no longer applies.
Json forked(const Json& extra, const std::vector<FieldDifference>& differences) {
  Json json = extra;
  const auto changed = [&](std::string_view root) {
    return std::ranges::any_of(differences,
                               [&](const FieldDifference& d) { return is_below(d.field, root); });
  };
  if (changed("recipe.keep_best")) json.erase("best");
  if (changed("recipe.early_stopping")) {
    json.erase("stopping");
  } else if (!differences.empty() && json.contains("stopping")) {
    json["stopping"]["since"] = 0;  // with the changes, later evaluations may improve again
  }
  return json;
}

}  // namespace

Result<Fork> plan_fork(const CheckpointFolder& from, const TrainJob& job) {
  std::optional<CheckpointState> state = find_state(from);
  if (!state) {
    return make_error(ErrorCode::kNotFound, "CHECKPOINT_NOT_FOUND",
                      "there is no whole checkpoint of step " + std::to_string(from.step));
  }
  ASSIGN_OR_RETURN(const RunIdentity identity, RunIdentity::of(job));
  ASSIGN_OR_RETURN(const std::vector<FieldDifference> differences,
                   identity.differences(record_of(*state)));
  std::vector<FieldDifference> wrong;
  std::ranges::copy_if(differences, std::back_inserter(wrong),
                       [](const FieldDifference& d) { return !may_change(d); });
  if (!wrong.empty()) return refused(wrong);

  Fork fork{from, std::move(*state), {}};
  for (const FieldDifference& d : differences) {
    fork.changes.push_back(d.field + ": " + d.recorded + " becomes " + d.job);
  }
  if (differences.empty()) return fork;
  const Json extra = Json::parse(fork.state.extra_json, nullptr, /*allow_exceptions=*/false);
  if (!extra.is_object()) {
    return make_error(ErrorCode::kDataLoss, "CHECKPOINT_MISMATCH",
                      "the checkpoint of step " + std::to_string(from.step) +
                          " has a loop state that is unreadable");
  }
  Json json = forked(extra, differences);
  json["run"] = identity.record().description;
  fork.state.extra_json = json.dump();
  fork.state.job_digest = identity.record().digest;
  return fork;
}

Result<CheckpointDigests> write_fork(Files& files, const Fork& fork,
                                     const std::filesystem::path& folder) {
  return link_checkpoint(files, fork.from, folder, fork.state);
}

}  // namespace trainyard
