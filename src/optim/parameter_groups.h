// src/optim/parameter_groups.h: settings of the optimizer for parameters selected by name.
#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/fields.h"
#include "src/base/result.h"
#include "src/optim/optimizer.h"

namespace trainyard {

/// Settings for the parameters whose name matches `match` (src/base/glob.h). Groups apply in order:
/// if two match, the later one overrides the fields that it sets.
struct ParameterGroup {
  std::string match = {};
  std::optional<bool> freeze = {};  // false: trains parameters that an earlier group froze
  std::optional<double> learning_rate_factor = {};
  std::optional<double> weight_decay = {};
};
template <FieldsOf<ParameterGroup> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [match, freeze, learning_rate_factor, weight_decay] = spec;
  visit("match", match);
  visit("freeze", freeze);
  visit("learning_rate_factor", learning_rate_factor);
  visit("weight_decay", weight_decay);
}

/// Checks ranges, and refuses fields that have no effect. Errors name the field as users write it:
/// recipe.parameter_groups[0].match.
Status check_parameter_groups(const std::vector<ParameterGroup>& groups);

/// Returns the rule of every parameter of a forward graph. Refuses a pattern that matches no
/// parameter, suggesting similar names, and groups that freeze everything. The groups in `first`
/// apply before the user's groups and may match nothing. CANCELLED/STOPPED once `stop` is
/// requested.
Result<std::map<TensorId, ParameterRule>> resolve_parameter_rules(
    const Graph& graph, const OptimizerSpec& optimizer, const std::vector<ParameterGroup>& groups,
    const std::vector<ParameterGroup>& first = {}, const std::stop_token& stop = {});

/// Returns which trained parameters decay and which do not, with the first few names of each; empty
/// if all do, or none.
std::string describe_weight_decay(const Graph& graph,
                                  const std::map<TensorId, ParameterRule>& rules);

/// Returns the error text for a pattern that matches nothing: "matches no parameter; did you mean
/// 'fc1.weight'?", or else the first few of the existing names.
std::string no_match(const std::string& pattern, const std::vector<std::string>& names,
                     std::string_view what = "parameter");

}  // namespace trainyard
